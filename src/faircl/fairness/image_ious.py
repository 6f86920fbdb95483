"""IoU image by image: the means mIoU^I over images and mIoU^C over classes, and their worst q %.

After Wang et al., "Revisiting Evaluation Metrics for Semantic Segmentation: Optimization and Evaluation of Fine-grained
Intersection over Union", NeurIPS 2023. A large object weighs no more than a small one in another image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from faircl.fairness.rates import Flags, Floats, percent
from faircl.fairness.record import ImageCounts

WORST = 5.0
"""The share of worst images, q, in percent."""


@dataclass(frozen=True)
class ImageIoUs:
    """Means in percent: mIoU^I, mIoU^C, both over the worst images only, and the term of every class (C,) in mIoU^C."""

    image_miou: float
    class_miou: float
    worst_image_miou: float
    worst_class_miou: float
    classes: Floats


def image_ious(counts: ImageCounts, known: Flags) -> Floats:
    """Return the IoU of every image and class (N, C) in percent.

    NaN where the image's truth does not show the class, even if it was predicted there, and for classes not ``known``.
    """
    hits, truth, predicted = counts
    return percent(hits, truth + predicted - hits, (truth > 0) & known)


def image_means(ious: Floats, q: float = WORST) -> ImageIoUs:
    """Reduce the IoUs (N, C) of images to the four means.

    Image i's own mean over the classes it shows is I_i, and mIoU^I the mean of I_i over images; class c's own mean over
    the images that show it is C_c, and mIoU^C the mean of C_c over classes. The worst q % are the max(1, ⌊q N / 100⌋)
    images with the lowest I_i, and for every class as many of its own n_c images with its lowest IoU.
    """
    by_image, by_class = known_means(ious, axis=1), known_means(ious, axis=0)
    shown = by_image[~np.isnan(by_image)]
    return ImageIoUs(
        image_miou=_mean(shown),
        class_miou=_mean(by_class),
        worst_image_miou=_mean(np.sort(shown)[: worst_count(len(shown), q)]),
        worst_class_miou=_mean(_worst(ious, q)),
        classes=by_class,
    )


def worst_count(images: int, q: float) -> int:
    """Return how many images are the worst q % of so many: rounded down, at least one."""
    return max(1, int(q / 100 * images))


def _worst(ious: Floats, q: float) -> Floats:
    """Return for every class the mean over its worst q % of the images that show it (C,)."""
    ranked = np.sort(ious, axis=0)  # NaN last
    shown = (~np.isnan(ious)).sum(axis=0)
    counts = np.maximum(1, (q / 100 * shown).astype(np.int64))
    return known_means(np.where(np.arange(len(ious))[:, None] < counts, ranked, np.nan), axis=0)


def known_means(values: Floats, axis: int) -> Floats:
    """Return the means of the values that are not NaN along an axis; NaN where there is none."""
    known = ~np.isnan(values)
    counts = known.sum(axis=axis)
    sums = np.where(known, values, 0).sum(axis=axis)
    return percent(sums, counts, counts > 0) / 100


def _mean(values: Floats) -> float:
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else math.nan
