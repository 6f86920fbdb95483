"""Confusion shares of a record, and which classes are confused most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from faircl.fairness.record import EvaluationRecord


def confusion_shares(record: EvaluationRecord) -> NDArray[np.float64]:
    """Return percent of each true class by predicted class (C, C + 1); rows without truth pixels are 0."""
    counts = record.confusion()
    shares: NDArray[np.float64] = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares


def most_confused(shares: NDArray[np.float64], most: int) -> list[int]:
    """Return so many classes, by position, of the pairs with the largest share of a class taken for another."""
    size = len(shares)
    named = shares[:, :size].copy()
    np.fill_diagonal(named, 0)
    pairs = np.argsort(-named, axis=None, kind="stable")
    pairs = pairs[named.ravel()[pairs] > 0]
    both = np.stack(np.divmod(pairs, size), axis=1).ravel()
    found, first = np.unique(both, return_index=True)
    return sorted(found[np.argsort(first)][:most].tolist())
