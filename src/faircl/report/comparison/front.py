"""Which rows a low spread may be praised in: a network that forgot every class treats all of them alike.

A run that forgot everything is on every Pareto front, since no other is more even. So a row is passed over as *levelled
down* if another row has a significantly higher mIoU and serves the worst-served third of its classes at least as well:
then the row is even because strong classes fell, and no weak class gained from it. Rows that are neither passed over
nor beaten by any other row in both mIoU and a spread are the front, and the lowest spread of the front is highlighted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from faircl.fairness.pareto import pareto_front
from faircl.report.comparison.rows import SPREADS, Row

if TYPE_CHECKING:
    from faircl.report.comparison.compared import Comparison
    from faircl.report.comparison.evidence import Evidence

MARGIN = 1.0
"""Percent points by which mIoU must be higher to count where runs have no records, so no interval is known."""

FRONTED = dict.fromkeys((*SPREADS, "forgetting"), "all")
FRONTED |= {f"{group}_std": group for group in ("old", "new", "initial", "added", "major", "minor")}
"""Measures that are good when low, each with the mean IoU without which it is not judged."""


def levelled_down(rows: Sequence[Row], evidence: Evidence) -> dict[str, str]:
    """Return the rows that are even at the cost of their strong classes, each with the row that shows it."""
    found = {}
    for row in rows:
        rivals = [other for other in rows if other is not row and _shows(other, row, evidence)]
        if rivals:
            found[row.label] = max(rivals, key=lambda other: other.mean["all"]).label
    return found


def fronts(rows: Sequence[Row], passed_over: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the labels on the front of each measure of FRONTED and its mean IoU, without those passed over in it.

    A row that one of those beats is not on it either.
    """
    found = {}
    for name, mean in FRONTED.items():
        on = pareto_front([(row.mean[mean], row.mean[name]) for row in rows])
        unbeaten = [row.label for row, there in zip(rows, on, strict=True) if there]
        found[name] = tuple(label for label in unbeaten if not _passed_over_in(rows, passed_over, label, name))
    return found


def levelled_down_in(comparison: Comparison, label: str, name: str) -> bool:
    """Whether a label is levelled down, and in this measure lower than the row that shows it at a lower mean IoU."""
    return _passed_over_in(comparison.rows, comparison.levelled_down, label, name)


def lowest(rows: Sequence[Row], front: Sequence[str], name: str) -> float | None:
    """Return the lowest value of a measure among the rows on its front; None where nothing can be highlighted."""
    known = [row.mean[name] for row in rows if row.mean[name] == row.mean[name]]
    return min((row.mean[name] for row in rows if row.label in front), default=None) if len(known) > 1 else None


def _passed_over_in(rows: Sequence[Row], passed_over: Mapping[str, str], label: str, name: str) -> bool:
    by_label = {row.label: row for row in rows}
    return label in passed_over and _lower(by_label[label], by_label[passed_over[label]], name)


def _lower(row: Row, other: Row, name: str) -> bool:
    """Whether ``row`` is lower than ``other`` in a measure and in the mean IoU that goes with it."""
    return all(row.mean[one] < other.mean[one] for one in (name, FRONTED[name]))


def _shows(other: Row, row: Row, evidence: Evidence) -> bool:
    """Whether ``row`` is lower in a measure of FRONTED, but ``other`` serves all classes and the worst third better."""
    lower = any(_lower(row, other, name) for name in FRONTED)
    if not lower or not other.mean["worst_third"] >= row.mean["worst_third"]:
        return False
    above = evidence.clearly_above(row.label, other.label)
    return other.mean["all"] - row.mean["all"] > MARGIN if above is None else above
