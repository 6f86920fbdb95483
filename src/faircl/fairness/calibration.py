"""Expected calibration error, overall and per predicted class, from the calibration bins of a record."""

from __future__ import annotations

import math

import numpy as np

from faircl.fairness.rates import Floats
from faircl.fairness.record import BINS, EvaluationRecord


def calibration_errors(record: EvaluationRecord) -> tuple[float, Floats]:
    """Return the calibration error over all pixels, and over the pixels predicted as each class (C,), in percent.

    ECE = Σ_b n_b / n · |accuracy_b − confidence_b| over bins b of equal width. NaN where no pixel is recorded.
    """
    size = len(record.classes) + 1
    _, predicted, bins, pixels, correct, confidence = record.reliability
    cells = predicted * BINS + bins
    counted, right, sure = (
        np.bincount(cells, column, minlength=size * BINS).reshape(size, BINS)
        for column in (pixels, correct, confidence)
    )
    misses = np.abs(right - sure)[:-1].sum(axis=1)
    counts = counted[:-1].sum(axis=1)
    by_class = np.divide(100 * misses, counts, out=np.full(size - 1, np.nan), where=counts > 0)
    total = float(counted.sum())
    overall = 100 * float(np.abs(right.sum(axis=0) - sure.sum(axis=0)).sum()) / total if total else math.nan
    return overall, by_class
