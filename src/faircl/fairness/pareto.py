"""The Pareto front of accuracy and spread: a small spread alone may mean that every class is served badly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faircl.fairness.rates import Flags


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return which of the points (mIoU, spread) lie on the front: no other has a higher mIoU and a lower spread.

    A point is off the front if another is at least as good in both and better in one; equal points are on it together.
    A point with NaN is never on it.

    >>> pareto_front([(60.0, 20.0), (55.0, 10.0), (50.0, 15.0)])
    [True, True, False]
    """
    values = np.asarray(points, np.float64).reshape(-1, 2)
    mean, spread = values[:, 0], values[:, 1]
    as_good = (mean[:, None] >= mean) & (spread[:, None] <= spread)
    better = (mean[:, None] > mean) | (spread[:, None] < spread)
    beaten = (as_good & better).any(axis=0)
    known: Flags = ~np.isnan(mean + spread)
    return [bool(one) for one in ~beaten & known]
