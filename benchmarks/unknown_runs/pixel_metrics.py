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
    high, low = np.sort(scores[unknown])[::-1], np.sort(scores[~unknown])
    thresholds, first = np.unique(-high, return_index=True)
    tp = np.append(first[1:], positives)  # unknown pixels at or above every threshold, from high to low
    above, at_least = (negatives - np.searchsorted(low, -thresholds, side) for side in ("right", "left"))
    gains = np.diff(tp, prepend=0) / positives
    auroc = np.sum(gains * (1 - (above + at_least) / (2 * negatives)))
    fpr95 = at_least[np.searchsorted(tp, int(np.ceil(TPR * positives)))] / negatives
    ap = np.sum(gains * tp / (tp + at_least))
    return Separation(float(auroc), float(fpr95), float(ap))
