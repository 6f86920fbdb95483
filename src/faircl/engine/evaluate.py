"""Evaluation: argmax of every pixel, one confusion matrix over all test images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faircl.acceleration import fused
from faircl.data.sample import SegmentationData
from faircl.distributed import global_sum, rank_slice
from faircl.labels import Mask
from faircl.loading.transforms import CentreCrop
from faircl.loading.whole_images import WholeImages, same_size_batches
from faircl.metrics import ConfusionMatrix, StepMetrics, summarise
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.scenario import FULL, Convention, Scenario
from faircl.upsampling import upsampled_argmax


@torch.no_grad()
def predict(model: Segmenter, images: Tensor) -> Tensor:
    """Return the channel of every pixel, (B, H, W), for images (B, 3, H, W) uint8."""
    logits = model(images.to(model.mean.device).to(model.mean.dtype) / 255).logits
    return upsampled_argmax(logits, images.shape[-2:])


def evaluate(
    model: Segmenter,
    data: SegmentationData,
    split: str,
    scenario: Scenario,
    step: int,
    *,
    convention: Convention = FULL,
    size: int = 512,
    batch: int,
    workers: int,
    reporter: Reporter,
) -> StepMetrics:
    """Evaluate all classes seen after a step on the step's test images, by a convention.

    ``size`` is the side of the centre crop, for conventions that cut one. Every process evaluates its share of the
    images; the result is that of all of them, on each.
    """
    channels = scenario.channels(step)
    confusion = ConfusionMatrix(channels, model.mean.device)
    own = tuple(rank_slice(scenario.steps[step].test_images))
    crop = CentreCrop(size) if convention.crop else None
    images = WholeImages(data, split, own, scenario.test_table(step, convention), crop)
    with evaluating(model), reporter.task(f"step {step} evaluate", len(images)) as task:
        for group in same_size_batches(images, batch, workers):
            prediction = predict(model, torch.stack([item.image for item in group]))
            labels = torch.stack([item.labels for item in group]).to(prediction.device).long()
            confusion.update(prediction, labels)
            for _ in group:
                task.advance()
    last = max(scenario.learned_at)
    return summarise(
        global_sum(confusion.counts),
        ids=scenario.channel_ids[:channels],
        names=scenario.names[:channels],
        learned_at=scenario.learned_at[:channels],
        # Joint training has one step, but its old and new classes are those of the task's last step.
        step=last if len(scenario.steps) == 1 else step,
        background=scenario.background,
        convention=convention.name,
    )


def predict_masks(
    model: Segmenter, data: SegmentationData, split: str, ids: Sequence[str], scenario: Scenario
) -> list[Mask]:
    """Return what a model makes of images at their own size, as masks in the data set's ids."""
    with evaluating(model):
        images = (torch.from_numpy(data.read(split, id).image).permute(2, 0, 1) for id in ids)
        return [class_ids(predict(model, image[None])[0].cpu().numpy(), scenario) for image in images]


@contextmanager
def evaluating(model: Segmenter) -> Iterator[None]:
    """Put a model into evaluation mode, with fused modules."""
    training = model.training
    model.eval()
    with fused(model):
        yield
    model.train(training)


def class_ids(channels: NDArray[np.int64], scenario: Scenario) -> Mask:
    """Turn the network's channels (H, W) into the data set's class ids."""
    ids = np.asarray(scenario.channel_ids)[channels]
    return ids.astype(np.uint8) if len(scenario.classes.names) <= 254 else ids.astype(np.uint16)
