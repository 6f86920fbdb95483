"""IoU and accuracy of every class from counted pixels, in percent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faircl.fairness.record import Counts, EvaluationRecord, ImageCounts

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Rates(NamedTuple):
    """IoU and accuracy (recall) of every class in percent, (C,) each, and which classes are present.

    A class is present if it is scored and has truth pixels; NaN for the others. ``pixels`` are those of the truth.
    """

    ious: Floats
    accuracies: Floats
    pixels: Counts
    present: Flags


def class_rates(record: EvaluationRecord, counts: ImageCounts | None = None) -> Rates:
    """Return the rates over all images of a record; ``counts`` saves counting them again."""
    hits, truth, predicted = (column.sum(axis=0) for column in counts or record.per_image())
    present = scored(record) & (truth > 0)
    union = truth + predicted - hits
    return Rates(percent(hits, union, present), percent(hits, truth, present), truth, present)


def scored(record: EvaluationRecord) -> Flags:
    """Return which classes are scored (C,)."""
    return np.array([c.scored for c in record.classes], dtype=bool)


def foreground(record: EvaluationRecord) -> Flags:
    """Return which classes are scored and not the background (C,)."""
    return np.array([c.scored and not c.background for c in record.classes], dtype=bool)


def percent(part: NDArray[Any], whole: NDArray[Any], known: NDArray[Any]) -> Floats:
    """Return 100 · part / whole where it is known, NaN elsewhere; all of one shape."""
    shares: Floats = np.divide(100 * part, whole, out=np.full(np.shape(part), np.nan), where=known)
    return shares
