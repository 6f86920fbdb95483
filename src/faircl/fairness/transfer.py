"""What a class gains and loses over the steps: forgetting, transfer, plasticity and intransigence.

T is the last step, s_c the step that learned class c, A_c(s) its IoU after step s. All values are percent points, NaN
where a class has no value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from faircl.fairness.plain import plain
from faircl.fairness.rates import class_rates
from faircl.fairness.record import EvaluationRecord


class MeasuredClass(Protocol):
    """One class of a measured step, as ``faircl.metrics.ClassMetrics`` and ``ClassAudit`` are."""

    @property
    def id(self) -> int:
        """Raw id."""

    @property
    def name(self) -> str:
        """Name."""

    @property
    def iou(self) -> float:
        """IoU in percent, NaN without a truth pixel."""

    @property
    def learned_at(self) -> int:
        """The step that learned it."""


class MeasuredStep(Protocol):
    """The classes measured after one step, as ``faircl.metrics.StepMetrics`` and ``Audit`` are."""

    @property
    def step(self) -> int:
        """Number of the step."""

    @property
    def classes(self) -> Sequence[MeasuredClass]:
        """The classes known after it."""


Step = EvaluationRecord | MeasuredStep


@dataclass(frozen=True)
class ClassTransfer:
    """The measures of one class."""

    id: int
    name: str
    learned_at: int
    forgetting: float
    backward: float
    forward: float
    plasticity: float
    intransigence: float


@dataclass(frozen=True)
class Transfer:
    """The measures of every class after the last step, and their means over the classes that have them.

    - forgetting: max_{s_c ≤ s < T} A_c(s) − A_c(T), for classes learned before T.
    - backward: A_c(T) − A_c(s_c), for classes learned before T.
    - forward: A_c(s_c) − B_c, B_c the IoU of a network that learned c without the earlier steps; NaN without one.
    - plasticity: A_c(s_c), for classes learned after the first step.
    - intransigence: J_c − A_c(s_c), J_c the IoU of a joint run, for classes learned after the first step.
    """

    classes: tuple[ClassTransfer, ...]
    forgetting: float
    backward: float
    forward: float
    plasticity: float
    intransigence: float

    def to_json(self) -> dict[str, Any]:
        """Plain values, NaN as None."""
        found: dict[str, Any] = plain(self)
        return found


def transfer(steps: Sequence[Step], *, joint: Step | None = None, alone: Iterable[Step] = ()) -> Transfer:
    """Compute the measures from the records or metrics of a run's steps.

    ``joint`` is an evaluation of a network trained on all classes at once, ``alone`` are evaluations of networks that
    learned classes without the earlier steps; a class takes the first that has it.
    """
    if not steps:
        raise ValueError("Transfer needs the metrics of at least one step.")
    ordered = sorted((_measured(one) for one in steps), key=lambda one: one.step)
    now = ordered[-1]
    learned = {c.id: c.iou for one in ordered for c in one.classes if c.learned_at == one.step}
    together = {} if joint is None else {c.id: c.iou for c in _measured(joint).classes}
    apart: dict[int, float] = {}
    for one in alone:
        apart |= {c.id: c.iou for c in _measured(one).classes if c.id not in apart and not math.isnan(c.iou)}
    lost = forgotten(ordered)
    found = []
    for c in now.classes:
        first = learned.get(c.id, math.nan)
        added = first if c.learned_at > 0 else math.nan
        found.append(
            ClassTransfer(
                id=c.id,
                name=c.name,
                learned_at=c.learned_at,
                forgetting=lost[c.id],
                backward=c.iou - first if c.learned_at < now.step else math.nan,
                forward=added - apart.get(c.id, math.nan),
                plasticity=added,
                intransigence=together.get(c.id, math.nan) - added,
            )
        )
    names = ("forgetting", "backward", "forward", "plasticity", "intransigence")
    return Transfer(tuple(found), *(_mean(getattr(one, name) for one in found) for name in names))


def forgotten(steps: Sequence[MeasuredStep]) -> dict[int, float]:
    """Return the forgetting of every class after the last step, by class id: its best earlier IoU minus the last.

    F_c = max_{s_c ≤ s < T} A_c(s) − A_c(T); NaN for classes learned at T, or without an IoU before.
    """
    now = max(steps, key=lambda one: one.step)
    best: dict[int, float] = {}
    for earlier in (one for one in steps if one.step < now.step):
        for c in earlier.classes:
            if not math.isnan(c.iou) and c.learned_at <= earlier.step:
                best[c.id] = max(c.iou, best.get(c.id, -math.inf))
    return {c.id: best.get(c.id, math.nan) - c.iou if c.learned_at < now.step else math.nan for c in now.classes}


class _Class(NamedTuple):
    id: int
    name: str
    iou: float
    learned_at: int


class _Step(NamedTuple):
    step: int
    classes: tuple[_Class, ...]


def _measured(step: Step) -> MeasuredStep:
    if not isinstance(step, EvaluationRecord):
        return step
    ious = class_rates(step).ious.tolist()
    rows = zip(step.classes, ious, strict=True)
    return _Step(step.step, tuple(_Class(c.id, c.name, iou, c.learned_at) for c, iou in rows))


def _mean(values: Iterable[float]) -> float:
    kept = [value for value in values if not math.isnan(value)]
    return math.fsum(kept) / len(kept) if kept else math.nan
