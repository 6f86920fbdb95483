"""Intervals for measures of an evaluation, by resampling its images."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from faircl.fairness.rates import Floats
from faircl.fairness.resampling import Resampled

RESAMPLES, CONFIDENCE = 2000, 0.95
FEWEST = 5
"""Images that must show a class for an interval: fewer say too little about how it varies."""


class Interval(NamedTuple):
    """Lower and upper end, in percent or percent points."""

    low: float
    high: float


def intervals(
    found: Resampled, images: ArrayLike, *, confidence: float = CONFIDENCE, lowest: float = 0.0
) -> list[Interval | None]:
    """Return the interval of each of M measures: m ± q · e, a symmetric studentised bootstrap (bootstrap-t).

    m is the measure, e its standard error, and q the quantile of |m* − m| / e* over drawn sets: the error of every set
    is estimated from that set, as e is from the images. Ends are cut to [``lowest``, 100]. ``images`` (M,) is how many
    images say something about each measure; None where fewer than FEWEST do, or the measure is not known. A level
    (``lowest`` 0) that no image changes, such as the IoU of a class never found, has none either: images that are all
    alike do not say how others would differ.
    """
    enough = np.broadcast_to(np.asarray(images), found.measures.shape) >= FEWEST
    enough = enough & ~np.isnan(found.measures) & (len(found.drawn) > 0)
    if lowest >= 0:
        enough = enough & (found.errors > 0)
    reach = found.errors * _quantiles(found, confidence)
    low, high = np.maximum(found.measures - reach, lowest), np.minimum(found.measures + reach, 100)
    ends = zip(enough.tolist(), low.tolist(), high.tolist(), strict=True)
    return [Interval(a, b) if one else None for one, a, b in ends]


def _quantiles(found: Resampled, confidence: float) -> Floats:
    """Return the quantile (M,) of |m* − m| / e*: the ⌈confidence · (R + 1)⌉-th smallest of the R known ones.

    A set without any error that equals the measure counts as 0, one that differs as infinite; where that makes the
    quantile infinite the interval is as wide as it can be.
    """
    away = np.abs(found.drawn - found.measures)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(away == 0, 0, away / found.drawn_errors)
    known = (~np.isnan(ratios)).sum(axis=0)
    place = np.minimum(np.ceil(confidence * (known + 1)), known).astype(np.int64) - 1
    ranked = np.sort(ratios, axis=0)  # NaN last
    if not len(ranked):
        return np.full(len(known), math.nan)
    chosen: Floats = ranked[np.maximum(place, 0), np.arange(len(known))]
    return chosen
