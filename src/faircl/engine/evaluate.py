"""Evaluation: argmax at the image's own size, one confusion matrix over all test images."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from faircl.data.loader import WholeImages, same_size_batches
from faircl.data.sample import Mask, SegmentationData
from faircl.distributed import gather_objects, global_sum, share_of
from faircl.metrics import ConfusionMatrix, StepMetrics, summarise
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.scenario import Scenario


@torch.no_grad()
def predict(model: Segmenter, images: Tensor) -> Tensor:
    """Return the channel of every pixel, (B, H, W), for images (B, 3, H, W) uint8."""
    logits = model(images.to(model.mean.device).to(model.mean.dtype) / 255).logits
    # One image at a time: full-resolution logits of a whole batch would be by far the largest tensor around.
    return torch.cat([_upsample(one, images.shape[-2:]).argmax(1) for one in logits.split(1)])


def evaluate(
    model: Segmenter,
    data: SegmentationData,
    split: str,
    scenario: Scenario,
    step: int,
    *,
    batch: int,
    workers: int,
    reporter: Reporter,
    examples: int = 0,
) -> tuple[StepMetrics, list[Mask]]:
    """Evaluate all classes seen after a step; also return the first images' predictions as raw masks.

    Every process evaluates its share of the test images; the result is that of all of them, on each.
    """
    channels = scenario.channels(step)
    confusion = ConfusionMatrix(channels, model.mean.device)
    own = tuple(share_of(scenario.test_images))
    images = WholeImages(data, split, own, scenario.test_table(step))
    wanted = len(share_of(scenario.test_images[:examples]))
    kept: list[Mask] = []
    training = model.training
    model.eval()
    with reporter.task(f"step {step} evaluate", len(images)) as task:
        for group in same_size_batches(images, batch, workers):
            prediction = predict(model, torch.stack([item.image for item in group]))
            labels = torch.stack([item.labels for item in group]).to(prediction.device).long()
            confusion.update(prediction, labels)
            kept.extend(_raw(mask, scenario) for mask in prediction[: max(wanted - len(kept), 0)].cpu().numpy())
            for _ in group:
                task.advance()
    model.train(training)
    last = max(scenario.learned_at)
    metrics = summarise(
        global_sum(confusion.counts),
        ids=scenario.channel_ids[:channels],
        names=scenario.names[:channels],
        learned_at=scenario.learned_at[:channels],
        # Joint training has one step, but its old and new classes are those of the task's last step.
        step=last if len(scenario.steps) == 1 else step,
        background=scenario.background,
    )
    return metrics, _in_order(gather_objects(kept))


def _in_order(shares: list[list[Mask]]) -> list[Mask]:
    """Put together what ``share_of`` took apart."""
    return [share[place] for place in range(max(map(len, shares))) for share in shares if place < len(share)]


def _upsample(logits: Tensor, size: torch.Size) -> Tensor:
    return F.interpolate(logits, size, mode="bilinear", align_corners=False)


def _raw(channels: NDArray[np.int64], scenario: Scenario) -> Mask:
    """Channels back to the data set's ids."""
    ids = np.asarray(scenario.channel_ids)[channels]
    return ids.astype(np.uint8) if len(scenario.classes.names) <= 254 else ids.astype(np.uint16)
