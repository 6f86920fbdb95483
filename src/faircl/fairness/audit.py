"""The audit of one evaluation: what every class gets, how far apart the classes are, and how sure that is."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faircl.fairness.intervals import Interval, percentile_interval, resampled_ious
from faircl.fairness.record import EvaluationRecord

RESAMPLES, CONFIDENCE = 2000, 0.95


@dataclass(frozen=True)
class ClassAudit:
    """One class. IoU, accuracy (recall) and error rate (1 − recall) in percent, NaN without a truth pixel.

    ``pixels`` are those of the truth, ``share`` their share among all of them in percent, ``images`` the images that
    show the class.
    """

    id: int
    name: str
    iou: float
    accuracy: float
    error_rate: float
    pixels: int
    share: float
    images: int
    learned_at: int
    interval: Interval | None


@dataclass(frozen=True)
class Audit:
    """All measures of an evaluation, in percent; the worst class has its own class's interval.

    ``gap`` is the best minus the worst class IoU, ``error_gap`` the largest difference between two error rates.
    """

    images: int
    classes: tuple[ClassAudit, ...]
    miou: float
    std: float
    gap: float
    error_gap: float
    miou_interval: Interval | None
    std_interval: Interval | None
    confidence: float = CONFIDENCE

    @property
    def worst(self) -> ClassAudit | None:
        """The class with the lowest IoU; None if no class is present."""
        return min((c for c in self.classes if c.pixels), key=lambda c: c.iou, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, NaN as None; the keys are a public contract."""
        out = asdict(self)
        worst = self.worst
        out["worst"] = {"name": worst.name, "iou": worst.iou} if worst else {"name": None, "iou": None}
        plain: dict[str, Any] = _plain(out)
        return plain


def audit_record(
    record: EvaluationRecord, *, resamples: int = RESAMPLES, confidence: float = CONFIDENCE, seed: int = 0
) -> Audit:
    """Compute every measure of a record; intervals from ``resamples`` sets of images drawn with replacement."""
    counts = record.per_image()
    hits, truth, predicted = (column.sum(axis=0) for column in counts)
    scored = np.array([c.scored for c in record.classes]) & (truth > 0)
    ious = _ratio(hits, truth + predicted - hits, scored)
    accuracies = _ratio(hits, truth, scored)
    sets = resampled_ious(counts, resamples, seed)
    sets[:, ~scored] = np.nan
    shown = (counts.truth > 0).sum(axis=0)
    classes = tuple(
        ClassAudit(
            id=c.id,
            name=c.name,
            iou=float(ious[k]),
            accuracy=float(accuracies[k]),
            error_rate=float(100 - accuracies[k]),
            pixels=int(truth[k]) if c.scored else 0,
            share=100 * float(truth[k]) / max(1, int(truth.sum())),
            images=int(shown[k]),
            learned_at=c.learned_at,
            interval=percentile_interval(sets[:, k], confidence),
        )
        for k, c in enumerate(record.classes)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a set without any class
        means, spreads = np.nanmean(sets, axis=1), np.nanstd(sets, axis=1)
        known = ious[scored]
        return Audit(
            images=len(record.images),
            classes=classes,
            miou=float(known.mean()),
            std=float(known.std()),
            gap=float(np.ptp(known)) if len(known) else math.nan,
            error_gap=float(np.ptp(accuracies[scored])) if len(known) else math.nan,
            miou_interval=percentile_interval(means, confidence),
            std_interval=percentile_interval(spreads, confidence),
            confidence=confidence,
        )


def _ratio(part: NDArray[Any], whole: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = np.full(len(part), np.nan)
    shares[known] = 100 * part[known] / whole[known]
    return shares


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
