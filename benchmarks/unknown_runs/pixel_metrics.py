"""How well a score separates unknown pixels, which are positive, from known ones; exact, ties included."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TPR = 0.95


class Separation(NamedTuple):
    """Shares in [0, 1].

    auroc: the share of pairs of an unknown and a known pixel whose unknown one has the larger score; ties count half.
    fpr95: the smallest share of known pixels at or above a threshold that has 95 % of the unknown ones at or above it.
    ap: Σ_n (R_n − R_{n−1})·P_n over thresholds from high to low, recall R and precision P; no interpolation.
    """

    auroc: float
    fpr95: float
    ap: float


def separation(scores: NDArray[np.float32], unknown: NDArray[np.bool_]) -> Separation:
    """Measure scores (n,) of pixels; NaN where all pixels are known or all are unknown."""
    positives, negatives = int(unknown.sum()), int((~unknown).sum())
    if positives == 0 or negatives == 0:
        return Separation(float("nan"), float("nan"), float("nan"))
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite")
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(unknown[order], dtype=np.int64)
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)  # the last pixel of every equal score
    tp = found[ends]
    fp = ends + 1 - tp
    recall, fall_out, precision = tp / positives, fp / negatives, tp / (tp + fp)
    auroc = np.trapezoid(np.append(0, recall), np.append(0, fall_out))
    fpr95 = fall_out[np.searchsorted(tp, int(np.ceil(TPR * positives)))]
    ap = np.sum(np.diff(recall, prepend=0) * precision)
    return Separation(float(auroc), float(fpr95), float(ap))
