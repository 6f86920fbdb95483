"""Intervals for measures of an evaluation, by resampling its images."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faircl.fairness.rates import Floats

RESAMPLES, CONFIDENCE = 2000, 0.95
FEWEST = 5
"""Images that must show a class for an interval: fewer say too little about how it varies."""


class Interval(NamedTuple):
    """Lower and upper end, in percent or percent points."""

    low: float
    high: float


def intervals(
    estimate: Floats, drawn: Floats, left_out: Floats, images: ArrayLike, confidence: float = CONFIDENCE
) -> list[Interval | None]:
    """Return the interval of each of M measures: bias-corrected and accelerated (BCa), Efron 1987.

    Shapes: estimate (M,), drawn (R, M) in sets of images drawn with replacement, left_out (N, M) in sets that leave one
    image out, images (M,) the number of images that say something about the measure. The ends are the quantiles
    Φ(z0 + (z0 + z) / (1 − a (z0 + z))) of the drawn values, z the normal quantiles of the confidence, z0 that of the
    share of drawn values below the estimate (half of the equal ones counted), and a the skewness
    Σ d³ / (6 (Σ d²)^1.5) of the values left out, d their differences from their mean. None where fewer than FEWEST
    images say something, or the estimate is not known.
    """
    enough = (np.broadcast_to(np.asarray(images), estimate.shape) >= FEWEST) & ~np.isnan(estimate)
    if not len(drawn) or not enough.any():
        return [None] * len(estimate)
    values = np.sort(drawn[:, enough], axis=0)  # NaN last
    known = (~np.isnan(values)).sum(axis=0)
    levels = _levels(estimate[enough], values, known, left_out[:, enough], confidence)
    ends = iter(zip(_quantile(values, known, levels[0]), _quantile(values, known, levels[1]), strict=True))
    return [Interval(*map(float, next(ends))) if one else None for one in enough]


def _levels(estimate: Floats, values: Floats, known: NDArray[np.int64], left_out: Floats, confidence: float) -> Floats:
    """Return the shares (2, M) of drawn values below the two ends."""
    below = ((values < estimate).sum(axis=0) + 0.5 * (values == estimate).sum(axis=0)) / np.maximum(1, known)
    bias = _each(NormalDist().inv_cdf, np.clip(below, 0.5 / len(values), 1 - 0.5 / len(values)))
    away = np.nanmean(left_out, axis=0) - left_out
    square, cube = np.nansum(away**2, axis=0), np.nansum(away**3, axis=0)
    skew = np.divide(cube, 6 * square**1.5, out=np.zeros_like(cube), where=square > 0)
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    shifted = bias + np.array([[-normal], [normal]])
    return _each(NormalDist().cdf, bias + shifted / np.maximum(1 - skew * shifted, 1e-6))


def _quantile(values: Floats, known: NDArray[np.int64], levels: Floats) -> Floats:
    """Return the quantile of every column's first known values, interpolated linearly."""
    place = levels * np.maximum(known - 1, 0)
    low = np.floor(place).astype(np.int64)
    columns = np.arange(values.shape[1])
    first, second = values[low, columns], values[np.minimum(low + 1, np.maximum(known - 1, 0)), columns]
    ends: Floats = first + (place - low) * (second - first)
    return ends


def _each(function: Callable[[float], float], values: Floats) -> Floats:
    found: Floats = np.vectorize(function, otypes=[np.float64])(values)
    return found
