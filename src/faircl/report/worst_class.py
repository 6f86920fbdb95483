"""The class served worst, and those that are served equally badly: one rule for all sentences, cards and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from faircl.fairness.audit import ClassAudit
from faircl.report.numbers import enumerated

if TYPE_CHECKING:  # an audit of masks needs no torch
    from faircl.metrics import ClassMetrics

C = TypeVar("C", ClassAudit, "ClassMetrics")


def equally_bad(worst: C, classes: Iterable[C]) -> list[C]:
    """Return the other classes with label pixels whose IoU is exactly that of the worst one, in their order."""
    return [c for c in classes if c.pixels and c.iou == worst.iou and c.id != worst.id]


def served_worst(worst: C, classes: Iterable[C]) -> str:
    """Return "bus is served worst", "bus is served worst, as is car" or "bus is served worst, as are car and bike"."""
    names = [c.name for c in equally_bad(worst, classes)]
    also = f", as {'is' if len(names) == 1 else 'are'} {enumerated(names)}" if names else ""
    return f"{worst.name} is served worst{also}"
