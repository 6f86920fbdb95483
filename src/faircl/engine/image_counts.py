"""Counting an evaluation image by image: confusion of classes, and how far confidence and accuracy agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from faircl.distributed import all_gather_objects
from faircl.fairness.record import BINS, Confusions, EvaluationRecord, RecordedClass, Reliability, join_records
from faircl.labels import IGNORE
from faircl.precision import at_least_float32

EVERY = 4
"""Calibration looks at every fourth pixel of every fourth row: a sixteenth of the pixels, spread evenly."""


class ImageCounter:
    """Collects the record of an evaluation, batch by batch."""

    def __init__(self, classes: Sequence[RecordedClass]) -> None:
        self.classes = tuple(classes)
        self.images: list[str] = []
        self._pairs: list[NDArray[np.int64]] = []
        self._bins: list[NDArray[np.float64]] = []

    @torch.no_grad()
    def update(self, ids: Sequence[str], logits: Tensor, prediction: Tensor, labels: Tensor) -> None:
        """Count a batch.

        Shapes: logits (B, C, h, w) at network stride, prediction and labels (B, H, W); labels that are IGNORE are not
        counted.

        Raises:
            ValueError: a label is neither a class nor IGNORE.
        """
        first = len(self.images)
        self.images += ids
        self._pairs.append(pair_counts(prediction, labels, len(self.classes), first))
        self._bins.append(_bin_counts(logits, labels, len(self.classes), first))

    def record(self, images: Sequence[str], step: int, kind: str, convention: str) -> EvaluationRecord:
        """Return the record of all processes, in the order of ``images``."""
        pairs = np.concatenate([np.zeros((0, 4), np.int64), *self._pairs]).T
        bins = np.concatenate([np.zeros((0, 6)), *self._bins]).T
        own = EvaluationRecord(
            self.classes,
            tuple(self.images),
            Confusions(*pairs),
            Reliability(*bins[:5].astype(np.int64), bins[5]),  # type: ignore[call-arg]
            step,
            kind,
            convention,
        )
        return join_records(all_gather_objects(own), images)


def pair_counts(prediction: Tensor, labels: Tensor, classes: int, first: int = 0) -> NDArray[np.int64]:
    """Return image, truth, prediction and number (E, 4) of all pairs that occur; images count from ``first``."""
    image = torch.arange(len(labels), device=labels.device).view(-1, 1, 1)
    counted = labels != IGNORE
    if bool((counted & ((labels < 0) | (labels >= classes))).any()):
        raise ValueError(f"labels have values outside [0, {classes}) that are not {IGNORE} (ignored).")
    keys = ((image * classes + labels) * classes + prediction)[counted]
    counts = torch.bincount(keys, minlength=len(labels) * classes * classes)
    present = counts.nonzero()[:, 0]
    key, number = present.cpu().numpy(), counts[present].cpu().numpy()
    pair, predicted = np.divmod(key, classes)
    place, truth = np.divmod(pair, classes)
    return np.stack([place + first, truth, predicted, number], axis=1)


def _bin_counts(logits: Tensor, labels: Tensor, classes: int, first: int) -> NDArray[np.float64]:
    """Return image, prediction, bin, pixels, correct ones and sum of confidences (E, 6) of all bins with pixels."""
    rows, columns = (_lattice(side, labels.device) for side in labels.shape[-2:])
    sure, predicted = _upsampled_at(logits, rows, columns, labels.shape[-2:]).softmax(1).max(1)
    truth = labels[:, rows][:, :, columns]
    image = torch.arange(len(labels), device=labels.device).view(-1, 1, 1).expand_as(truth)
    counted = (truth != IGNORE).cpu().numpy()
    image_, sure_, predicted_, truth_ = (one.cpu().numpy()[counted] for one in (image, sure, predicted, truth))
    bins = np.minimum((sure_ * BINS).astype(np.int64), BINS - 1)
    keys = (image_ * classes + predicted_) * BINS + bins
    size = len(labels) * classes * BINS
    pixels = np.bincount(keys, minlength=size)
    correct = np.bincount(keys[predicted_ == truth_], minlength=size)
    total = np.bincount(keys, sure_.astype(np.float64), minlength=size)
    key = np.flatnonzero(pixels)
    pair, bin = np.divmod(key, BINS)
    place, channel = np.divmod(pair, classes)
    return np.stack([place + first, channel, bin, pixels[key], correct[key], total[key]], axis=1)


def _lattice(side: int, device: torch.device) -> Tensor:
    """Return the rows or columns looked at, (n,): every fourth, at least one."""
    return torch.arange(min(EVERY // 2, side - 1), side, EVERY, device=device)


def _upsampled_at(logits: Tensor, rows: Tensor, columns: Tensor, size: torch.Size) -> Tensor:
    """Return what bilinear upsampling to a size (H, W) gives at rows (m,) and columns (n,): (B, C, m, n)."""
    logits = at_least_float32(logits)
    y, x = ((2 * at + 1).to(logits.dtype) / side - 1 for at, side in zip((rows, columns), size, strict=True))
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).expand(len(logits), -1, -1, -1)
    return F.grid_sample(logits, grid, mode="bilinear", padding_mode="border", align_corners=False)
