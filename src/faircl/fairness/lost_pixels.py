"""Where the pixels of a class went: to the background, to an older or newer class, or to none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faircl.fairness.rates import Floats, class_rates, percent
from faircl.fairness.record import EvaluationRecord

KINDS = ("itself", "background", "old", "same", "newer", "none")
"""Where a pixel may go: its own class, the background, a class learned earlier, in the same step, later, or nowhere."""
NONE = -1
"""The id of the receiver of pixels for which no class was predicted."""


@dataclass(frozen=True)
class Receiver:
    """Another class that pixels went to: their share of the class's truth in percent, and its change in points."""

    id: int
    name: str
    share: float
    change: float | None


@dataclass(frozen=True)
class LostPixels:
    """Where the truth pixels of a class went, by kind, in percent of them; the shares add up to 100.

    ``change`` is the difference from the earlier step ``since`` in percent points; it adds up to 0. ``receivers`` are
    the other classes with the largest shares, or with the largest growth if there is an earlier step.
    """

    id: int
    name: str
    pixels: int
    shares: dict[str, float]
    since: int | None
    change: dict[str, float] | None
    receivers: tuple[Receiver, ...]


def lost_pixels(
    record: EvaluationRecord,
    before: EvaluationRecord | Mapping[int, EvaluationRecord] | None = None,
    *,
    receivers: int = 3,
) -> tuple[LostPixels, ...]:
    """Return for every present class where its truth pixels were predicted, in the order of the record's classes.

    ``before`` is the record of an earlier step, one for all classes or one for each class id (``earlier_records``). The
    change is that of the class's row of the confusion matrix over the images of both: a net flow, in which pixels that
    came and pixels that went cancel out.
    """
    confusion = record.confusion()
    rows, kinds = _shares(confusion), _kinds(record)
    ids, names = [*(c.id for c in record.classes), NONE], [*(c.name for c in record.classes), "none"]
    earlier = before if isinstance(before, Mapping) else dict.fromkeys((c.id for c in record.classes), before)
    changes = {id(one): _changes(record, one) for one in earlier.values() if one is not None}
    found = []
    for k in np.flatnonzero(class_rates(record).present).tolist():
        was = earlier.get(record.classes[k].id)
        moved = None if was is None else changes[id(was)][k]
        if moved is None or np.isnan(moved).any():
            was = moved = None
        gains = rows[k] if moved is None else moved
        order = [j for j in np.argsort(-gains, kind="stable").tolist() if j != k and gains[j] > 0][:receivers]
        found.append(
            LostPixels(
                id=record.classes[k].id,
                name=record.classes[k].name,
                pixels=int(confusion[k].sum()),
                shares=_by_kind(rows[k], kinds[k]),
                since=None if was is None else was.step,
                change=None if moved is None else _by_kind(moved, kinds[k]),
                receivers=tuple(
                    Receiver(ids[j], names[j], float(rows[k, j]), None if moved is None else float(moved[j]))
                    for j in order
                ),
            )
        )
    return tuple(found)


def earlier_records(records: Sequence[EvaluationRecord], *, at: str = "best") -> dict[int, EvaluationRecord]:
    """Return for every class of the last step the record to compare it with, by class id, from records of all steps.

    ``at="best"`` is the earlier step with its highest IoU (the first of equals), ``at="learned"`` the step that learned
    it. A class learned at the last step has none.
    """
    if at not in ("best", "learned"):
        raise ValueError(f"at is '{at}', expected 'best' or 'learned'.")
    ordered = sorted(records, key=lambda one: one.step)
    found: dict[int, EvaluationRecord] = {}
    best: dict[int, float] = {}
    for one in ordered[:-1]:
        for c, iou in zip(one.classes, class_rates(one).ious.tolist(), strict=True):
            later = at == "learned" and c.learned_at != one.step
            if c.learned_at <= one.step and not later and iou > best.get(c.id, -1.0):
                best[c.id], found[c.id] = iou, one
    return found


def _shares(confusion: Floats) -> Floats:
    totals = np.broadcast_to(confusion.sum(axis=1, keepdims=True), confusion.shape)
    return percent(confusion, totals, totals > 0)


def _kinds(record: EvaluationRecord) -> NDArray[np.int64]:
    """Return the kind (C, C + 1) of every prediction for the pixels of every class, by position in KINDS."""
    learned = np.array([c.learned_at for c in record.classes])
    kinds = np.full((len(learned), len(learned) + 1), KINDS.index("none"))
    kinds[:, :-1] = KINDS.index("same") + np.sign(learned[None, :] - learned[:, None])
    kinds[:, :-1][:, np.array([c.background for c in record.classes], dtype=bool)] = KINDS.index("background")
    np.fill_diagonal(kinds, KINDS.index("itself"))
    return kinds


def _by_kind(row: Floats, kinds: NDArray[np.int64]) -> dict[str, float]:
    return dict(zip(KINDS, np.bincount(kinds, row, minlength=len(KINDS)).tolist(), strict=True))


def _changes(record: EvaluationRecord, before: EvaluationRecord) -> Floats:
    """Return the change of all shares (C, C + 1) since an earlier record; NaN for classes it does not show."""
    now, was = record, before
    if record.images != before.images:
        place = {id: k for k, id in enumerate(before.images)}
        shared = [k for k, id in enumerate(record.images) if id in place]
        now, was = record.select(shared), before.select([place[record.images[k]] for k in shared])
    column = {c.id: k for k, c in enumerate(record.classes)}
    # A class that is not there any more counts as none; its own row is dropped.
    size = len(record.classes)
    to = [*(column.get(c.id, size) for c in before.classes), size]
    moved = np.zeros((size + 1, size + 1))
    np.add.at(moved, np.ix_(to[:-1], to), was.confusion())
    return _shares(now.confusion()) - _shares(moved[:size])
