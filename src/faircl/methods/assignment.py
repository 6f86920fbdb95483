"""Labels for unlabelled pixels: the closest prototype or the classifier's prediction, with a doubt per pixel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from faircl.distributed import global_sum
from faircl.labels import IGNORE
from faircl.loading.assigned_labels import AssignedLabels, PackedArray
from faircl.upsampling import upsampled_argmax

DOUBT_LEVELS = 256


class Assignment(NamedTuple):
    """Labels (B, H, W) int64 among the known channels and, where asked for, the doubt (B, H, W) in [0, 1]."""

    labels: Tensor
    doubt: Tensor | None


def prototype_distances(features: Tensor, prototypes: Tensor, order: float = 2.0) -> Tensor:
    """Distance of every pixel to every prototype: (B, D, h, w), (K, D) to (B, K, h, w)."""
    b, d, h, w = features.shape
    flat = features.permute(0, 2, 3, 1).reshape(-1, d).to(prototypes.dtype)
    return torch.cdist(flat, prototypes, p=order).view(b, h, w, -1).permute(0, 3, 1, 2)


@torch.no_grad()
def assign_by_prototype(
    features: Tensor, prototypes: Tensor, ready: Tensor, size: torch.Size, *, order: float = 2.0, doubt: bool = False
) -> Assignment:
    """Return the closest cluster at label size; doubt is d1/d2, its distance over that of the second closest.

    Distances are upsampled, not features, which gives smooth borders between the network's grid points.
    Shapes: features (B, D, h, w); prototypes (K, D); ready (K,) bool; size (H, W).
    """

    def one(distance: Tensor) -> Assignment:
        # Masked, not selected: a selection would wait for the device.
        distance = _upsample(distance, size).masked_fill(~ready[:, None, None], torch.inf)
        nearest = distance.topk(min(2, len(ready)), dim=1, largest=False)
        first, second = nearest.values[:, 0], nearest.values[:, -1]
        second = second.where(second.isfinite(), first)  # a single cluster
        return Assignment(nearest.indices[:, 0], first / second.clamp_min(1e-12) if doubt else None)

    return _by_image(one, prototype_distances(features, prototypes, order))


@torch.no_grad()
def assign_by_softmax(logits: Tensor, size: torch.Size, *, doubt: bool = False) -> Assignment:
    """Return the predicted class at label size; doubt is the softmax's entropy over log K. Logits (B, K, h, w)."""
    if not doubt:
        return Assignment(upsampled_argmax(logits, size), None)

    def one(logits: Tensor) -> Assignment:
        log_p = _upsample(logits, size).log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1)
        return Assignment(log_p.argmax(1), entropy / math.log(max(logits.shape[1], 2)))

    return _by_image(one, logits)


def _by_image(assign: Callable[[Tensor], Assignment], maps: Tensor) -> Assignment:
    """Assign image by image, so that only one (1, K, H, W) is in memory at a time."""
    parts = [assign(maps[k : k + 1]) for k in range(len(maps))]
    doubts = [part.doubt for part in parts if part.doubt is not None]
    return Assignment(torch.cat([part.labels for part in parts]), torch.cat(doubts) if doubts else None)


class RejectingAssigner:
    """Collects a step's assignments, then stores them without the most doubtful share of every class.

    The threshold is a quantile per class over all images of the step, so all of them are collected first. Doubt is
    rounded to 256 levels, and the quantile is taken from a histogram. An assignment without doubt counts as certain.
    """

    def __init__(self, classes: int, reject: float) -> None:
        self.classes, self.reject = classes, reject
        self.histogram = np.zeros((classes, DOUBT_LEVELS), np.int64)
        self.pending: list[tuple[str, PackedArray, PackedArray]] = []

    def add(self, ids: list[str], assignment: Assignment, unlabelled: Tensor) -> None:
        """Add a batch; ``unlabelled`` (B, H, W) bool marks the pixels that are assigned labels."""
        labels = assignment.labels.masked_fill(~unlabelled, IGNORE).cpu().numpy().astype(np.uint16)
        certain = torch.zeros(assignment.labels.shape) if assignment.doubt is None else assignment.doubt
        doubt = (certain.clamp(0, 1) * (DOUBT_LEVELS - 1)).round().byte().cpu().numpy()
        kept = labels != IGNORE
        flat = labels[kept].astype(np.int64) * DOUBT_LEVELS + doubt[kept]
        self.histogram += np.bincount(flat, minlength=self.histogram.size).reshape(self.histogram.shape)
        pack = PackedArray.pack  # compressed: a step may have tens of thousands of images
        self.pending.extend((id, pack(y), pack(d)) for id, y, d in zip(ids, labels, doubt, strict=True))

    def store(self, into: AssignedLabels) -> NDArray[np.int64]:
        """Store the masks of all processes, rejected pixels as IGNORE; return the number of kept pixels (K,)."""
        self.histogram = global_sum(torch.from_numpy(self.histogram)).numpy()
        threshold = self._thresholds()
        keep = np.arange(DOUBT_LEVELS) <= threshold[:, None]
        keep = np.concatenate([keep, np.zeros((1, DOUBT_LEVELS), bool)])  # the row of IGNORE
        for id, packed, doubt in self.pending:
            labels = packed.unpack()
            row = np.minimum(labels, self.classes)
            into[id] = np.where(keep[row, doubt.unpack()], labels, np.uint16(IGNORE))
        self.pending.clear()
        into.gather()
        kept: NDArray[np.int64] = (self.histogram * keep[:-1]).sum(1)
        return kept

    def _thresholds(self) -> NDArray[np.int64]:
        """Return the largest doubt level kept of every class: at least 1 − reject of its pixels are at or below it."""
        if self.reject == 0:
            return np.full(self.classes, DOUBT_LEVELS - 1)
        share = self.histogram.cumsum(1) / np.maximum(self.histogram.sum(1, keepdims=True), 1)
        level: NDArray[np.int64] = (share >= 1 - self.reject).argmax(1)
        return level


def _upsample(map: Tensor, size: torch.Size) -> Tensor:
    return map if map.shape[-2:] == size else F.interpolate(map, size, mode="bilinear", align_corners=False)
