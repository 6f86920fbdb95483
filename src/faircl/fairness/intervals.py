"""Intervals for measures of an evaluation, by resampling its images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faircl.fairness.record import ImageCounts


class Interval(NamedTuple):
    """Lower and upper end, in percent or percent points."""

    low: float
    high: float


def resampled_ious(counts: ImageCounts, resamples: int, seed: int) -> NDArray[np.float64]:
    """Return the IoU in percent of every class (resamples, C) in sets of N images drawn from the N with replacement.

    NaN where a set shows no truth pixel of the class.
    """
    total = len(counts.hits)
    generator = np.random.default_rng(seed)
    draws = generator.multinomial(total, np.full(total, 1 / total), size=resamples).astype(np.float64)
    hits, truth, predicted = (draws @ column for column in counts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(truth > 0, 100 * hits / (truth + predicted - hits), np.nan)


def percentile_interval(values: NDArray[np.float64], confidence: float) -> Interval | None:
    """Return the central interval of resampled values (R,); None where half of them are not known."""
    known = values[~np.isnan(values)]
    if 2 * len(known) < len(values):
        return None
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))
