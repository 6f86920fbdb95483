"""Accuracy and IoU by the size of objects, an object being the region of one class in one image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from faircl.fairness.rates import Flags, percent
from faircl.fairness.record import ImageCounts

SIZES = ("small", "medium", "large")
LIMITS = (1 / 300, 0.03)
"""Shares of an image at which medium and large begin: 32² and 96² of 640 × 480 pixels, the limits of COCO."""


@dataclass(frozen=True)
class SizeStratum:
    """All objects of one size: how many, their truth pixels, and accuracy and IoU of their pixels in percent."""

    name: str
    objects: int
    pixels: int
    accuracy: float
    iou: float


def size_strata(counts: ImageCounts, known: Flags) -> tuple[SizeStratum, ...]:
    """Group the regions of the known classes (C,) by their share of the image's counted pixels.

    Accuracy is Σ hits / Σ truth and IoU Σ hits / Σ union over the regions of a stratum; the union of a region counts
    the pixels that were wrongly predicted as its class in the same image.
    """
    hits, truth, predicted = counts
    regions = (truth > 0) & known
    shares = truth / np.maximum(1, truth.sum(axis=1, keepdims=True))
    stratum = np.digitize(shares[regions], LIMITS)
    columns = (hits, truth, truth + predicted - hits)
    right, pixels, union = (np.bincount(stratum, column[regions], minlength=len(SIZES)) for column in columns)
    objects = np.bincount(stratum, minlength=len(SIZES))
    accuracies, ious = percent(right, pixels, objects > 0), percent(right, union, objects > 0)
    rows = zip(SIZES, objects, pixels, accuracies, ious, strict=True)
    return tuple(SizeStratum(name, int(n), int(p), float(a), float(i)) for name, n, p, a, i in rows)
