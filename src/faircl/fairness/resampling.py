"""Sets of images drawn with replacement, sets that leave one image out, and the class IoUs of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faircl.fairness.rates import Flags, Floats, percent
from faircl.fairness.record import ImageCounts

_CELLS = 4_000_000  # of one chunk of draws: 32 MB
_RARE = 40  # a class that more images show is missing from a drawn set with probability e^−40


def resampled_ious(several: Sequence[ImageCounts], resamples: int, seed: int) -> list[Floats]:
    """Return for each of several counts of the same N images the class IoUs (resamples, C) of drawn sets, in percent.

    A set holds N of the N images, drawn with replacement; all counts share the sets. NaN where a set shows no truth
    pixel of the class.
    """
    images = len(several[0].hits)
    columns = [_columns(counts) for counts in several]
    found = [np.empty((resamples, counts.hits.shape[1])) for counts in several]
    generator = np.random.default_rng(seed)
    chunk = max(1, _CELLS // max(1, images))
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        drawn = generator.integers(0, images, (size, images)) + images * np.arange(size)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=size * images).reshape(size, images).astype(np.float64)
        for (hits, union, rare, shown), ious in zip(columns, found, strict=True):
            right, whole = weights @ hits, weights @ union
            part = percent(right, whole, whole > 0)
            part[:, rare] = np.where(weights @ shown > 0, part[:, rare], np.nan)
            ious[start : start + size] = part
    return found


def left_out_ious(counts: ImageCounts) -> Floats:
    """Return the class IoUs (N, C) in percent of the N sets that leave one image out; NaN as above."""
    hits, truth, predicted = counts
    union = truth + predicted - hits
    others = truth.sum(axis=0) - truth
    return percent(hits.sum(axis=0) - hits, union.sum(axis=0) - union, others > 0)


def with_mean_and_std(ious: Floats, known: Flags) -> Floats:
    """Append the mean and the standard deviation of the known classes to IoUs (…, C), shape (…, C + 2).

    A class without an IoU is left out of both, as an evaluation of that set would do.
    """
    chosen = ious[..., known]
    there = ~np.isnan(chosen)
    count = there.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        mean = np.where(there, chosen, 0).sum(axis=-1, keepdims=True) / count
        spread = np.sqrt((np.where(there, chosen - mean, 0) ** 2).sum(axis=-1, keepdims=True) / count)
    return np.concatenate([ious, mean, spread], axis=-1)


def _columns(counts: ImageCounts) -> tuple[Floats, Floats, Flags, Floats]:
    hits, truth, predicted = counts
    shown = truth > 0
    rare = shown.sum(axis=0) < _RARE
    return hits.astype(np.float64), (truth + predicted - hits).astype(np.float64), rare, shown[:, rare].astype(float)
