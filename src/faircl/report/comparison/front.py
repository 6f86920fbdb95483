"""Which rows a low spread may be praised in: a network that forgot every class treats all of them alike.

A run that forgot everything is on every Pareto front, since no other is more even. So a row is passed over as *levelled
down* if another row has a significantly higher mIoU and serves the worst-served third of its classes at least as well:
then the row is even because strong classes fell, and no weak class gained from it. The front of mIoU and a spread is
taken over the other rows, and the lowest spread of the front is the one that is highlighted.
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
    """Return the labels on the front of each measure of FRONTED and its mean IoU.

    A levelled-down row stays where the mean IoU is that of some classes, and these it serves at least as well as the
    row that shows it: there nothing fell.
    """
    means = {row.label: row.mean for row in rows}
    found = {}
    for name, mean in FRONTED.items():
        kept = [
            row for row in rows if row.label not in passed_over or row.mean[mean] >= means[passed_over[row.label]][mean]
        ]
        on = pareto_front([(row.mean[mean], row.mean[name]) for row in kept])
        found[name] = tuple(row.label for row, there in zip(kept, on, strict=True) if there)
    return found


def levelled_down_in(comparison: Comparison, label: str, name: str) -> bool:
    """Whether a label is levelled down and lower in this measure than the row that shows it."""
    values = {row.label: row.mean[name] for row in comparison.rows}
    shown = comparison.levelled_down.get(label)
    return shown is not None and values[label] < values[shown]


def lowest(rows: Sequence[Row], front: Sequence[str], name: str) -> float | None:
    """Return the lowest value of a measure among the rows on its front; None where nothing can be highlighted."""
    known = [row.mean[name] for row in rows if row.mean[name] == row.mean[name]]
    return min((row.mean[name] for row in rows if row.label in front), default=None) if len(known) > 1 else None


def _shows(other: Row, row: Row, evidence: Evidence) -> bool:
    """Whether ``row`` is lower in a measure of FRONTED, but ``other`` serves all classes and the worst third better."""
    lower = any(row.mean[name] < other.mean[name] for name in FRONTED)
    if not lower or not other.mean["worst_third"] >= row.mean["worst_third"]:
        return False
    above = evidence.clearly_above(row.label, other.label)
    return other.mean["all"] - row.mean["all"] > MARGIN if above is None else above
