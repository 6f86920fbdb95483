"""Evaluation: the argmax at every pixel, counted image by image, and the metrics over all test images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faircl.acceleration.evaluation import evaluation_mode
from faircl.data.sample import SegmentationData
from faircl.distributed import rank_slice
from faircl.engine.image_counts import ImageCounter
from faircl.fairness.record import EvaluationRecord, RecordedClass
from faircl.labels import Mask
from faircl.loading.transforms import CentreCrop
from faircl.loading.whole_images import WholeImages, same_size_batches
from faircl.metrics import StepMetrics, summarise
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.scenario import FULL, Convention, Scenario
from faircl.scenario.conventions import EvaluatedImages
from faircl.upsampling import upsampled_argmax


class Evaluation(NamedTuple):
    """The metrics of an evaluation, and its record image by image."""

    metrics: StepMetrics
    record: EvaluationRecord


@torch.no_grad()
def predict(model: Segmenter, images: Tensor) -> Tensor:
    """Return the predicted channel of every pixel, (B, H, W), for images (B, 3, H, W) uint8."""
    return upsampled_argmax(_logits(model, images), images.shape[-2:])


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
    label: str | None = None,
    kind: EvaluatedImages = "test",
) -> Evaluation:
    """Evaluate all classes learned up to a step on the step's test images.

    ``size`` is the side of the centre crop, for conventions that crop; ``kind`` says whether the scenario's test images
    are such, or validation images in their place. Every process evaluates its share of the images and returns the
    evaluation of all of them.
    """
    channels = scenario.channels(step)
    counter = ImageCounter(_recorded_classes(scenario, channels))
    local_images = tuple(rank_slice(scenario.steps[step].test_images))
    crop = CentreCrop(size) if convention.crop else None
    images = WholeImages(data, split, local_images, scenario.test_table(step, convention), crop)
    with evaluation_mode(model), reporter.task(label or f"step {step} evaluate", len(images)) as task:
        for group in same_size_batches(images, batch, workers, reporter):
            labels = torch.stack([item.labels for item in group]).to(model.mean.device).long()
            logits = _logits(model, torch.stack([item.image for item in group]))
            counter.update([item.id for item in group], logits, upsampled_argmax(logits, labels.shape[-2:]), labels)
            for _ in group:
                task.advance()
    # Joint training has one step; old and new classes are defined by the last step of the task.
    reported = max(scenario.learned_at) if len(scenario.steps) == 1 else step
    record = counter.record(scenario.steps[step].test_images, reported, kind, convention.name)
    metrics = summarise(
        torch.from_numpy(record.confusion()[:, :channels]).long(),
        ids=scenario.channel_ids[:channels],
        names=scenario.names[:channels],
        learned_at=scenario.learned_at[:channels],
        step=reported,
        background=scenario.background,
        background_absent=scenario.background_absent,
        convention=convention.name,
        images=kind,
    )
    return Evaluation(metrics, record)


def predict_masks(
    model: Segmenter, data: SegmentationData, split: str, ids: Sequence[str], scenario: Scenario
) -> list[Mask]:
    """Return the predictions for images at their own size, as masks (H, W) of the data set's class ids."""
    with evaluation_mode(model):
        images = (torch.from_numpy(data.read(split, id).image).permute(2, 0, 1) for id in ids)
        return [channels_to_class_ids(predict(model, image[None])[0].cpu().numpy(), scenario) for image in images]


@torch.no_grad()
def _logits(model: Segmenter, images: Tensor) -> Tensor:
    logits: Tensor = model(images.to(model.mean.device).to(model.mean.dtype) / 255).logits
    return logits


def _recorded_classes(scenario: Scenario, channels: int) -> list[RecordedClass]:
    background = [scenario.background and channel == 0 for channel in range(channels)]
    return [
        RecordedClass(id, name, 0 if back else at, back, not (back and scenario.background_absent))
        for id, name, at, back in zip(
            scenario.channel_ids[:channels],
            scenario.names[:channels],
            scenario.learned_at[:channels],
            background,
            strict=True,
        )
    ]


def channels_to_class_ids(channels: NDArray[np.int64], scenario: Scenario) -> Mask:
    """Map channels (H, W) to the data set's class ids; uint8 up to 254 classes, uint16 above."""
    ids = np.asarray(scenario.channel_ids)[channels]
    return ids.astype(np.uint8) if len(scenario.classes.names) <= 254 else ids.astype(np.uint16)
