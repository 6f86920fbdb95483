"""How far apart values of classes are: measures of spread, and the bound of summed errors.

All take the values of the present classes as an array (K,), without NaN, and are NaN where they are not defined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from faircl.fairness.rates import Floats


def spread(values: ArrayLike) -> float:
    """Return the population standard deviation √(Σ (x − x̄)² / K)."""
    x = _floats(values)
    return float(x.std()) if len(x) else math.nan


def gap(values: ArrayLike) -> float:
    """Largest minus smallest value, max_{a, b} |x_a − x_b|."""
    x = _floats(values)
    return float(np.ptp(x)) if len(x) else math.nan


def worst_mean(values: ArrayLike, k: int) -> float:
    """Mean of the k smallest values, of all if there are fewer."""
    x = np.sort(_floats(values))[:k]
    return float(x.mean()) if len(x) else math.nan


def gini(values: ArrayLike) -> float:
    """Gini coefficient Σ_{a, b} |x_a − x_b| / (2 K² x̄): 0 if all are equal, 1 − 1/K if one class has everything.

    From the sorted values, Σ_i (2 i − K − 1) x_(i) / (K² x̄). NaN if all are zero.
    """
    x = np.sort(_floats(values))
    if not x.any():
        return math.nan
    size = len(x)
    return float((2 * np.arange(1, size + 1) - size - 1) @ x / (size * x.sum()))


def jain(values: ArrayLike) -> float:
    """Jain's fairness index (Σ x)² / (K Σ x²): 1 if all are equal, 1/K if one class has everything.

    NaN if all are zero.
    """
    x = _floats(values)
    return float(x.sum() ** 2 / (len(x) * (x @ x))) if x.any() else math.nan


def variation(values: ArrayLike) -> float:
    """Coefficient of variation, the standard deviation over the mean. NaN if all are zero."""
    x = _floats(values)
    return float(x.std() / x.mean()) if x.any() else math.nan


def rank_correlation(values: ArrayLike, others: ArrayLike) -> float:
    """Spearman's ρ: the correlation of the ranks, equal values sharing the mean of their ranks.

    NaN with fewer than two classes, or if all values of one side are equal.
    """
    first, second = _ranks(_floats(values)), _ranks(_floats(others))
    if len(first) < 2 or not np.ptp(first) or not np.ptp(second):
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


@dataclass(frozen=True)
class SummedErrors:
    """The chain of the FairCL paper's Eqn 3 for missed pixels: ``gap`` ≤ ``pairs`` ≤ ``bound``.

    With E_c the mean number of missed pixels of class c per image: gap = max_{a, b} |E_a − E_b|, pairs =
    Σ_{a, b} |E_a − E_b| over ordered pairs, bound = 2 K Σ_c E_c.
    """

    gap: float
    pairs: float
    bound: float


def summed_errors(missed: ArrayLike, images: int) -> SummedErrors:
    """Compute Eqn 3 from the missed pixels (K,) of every class in so many images."""
    errors = np.sort(_floats(missed)) / max(1, images)
    size = len(errors)
    pairs = 2 * float((2 * np.arange(1, size + 1) - size - 1) @ errors)
    return SummedErrors(gap(errors), pairs, 2 * size * float(errors.sum()))


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, the mean of their places for equal values."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: Floats = (last - (count - 1) / 2)[place]
    return ranks


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, np.float64)
