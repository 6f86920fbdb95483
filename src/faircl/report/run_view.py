"""What the page of a run shows: its classes by frequency, and every step with intervals where records are there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from faircl.errors import UserError
from faircl.fairness.audit import Audit, ClassAudit, audit_record
from faircl.fairness.lost_pixels import LostPixels, lost_pixels
from faircl.fairness.record import EvaluationRecord
from faircl.fairness.record_file import load_record
from faircl.fairness.transfer import forgotten
from faircl.metrics import ClassMetrics, StepMetrics
from faircl.runs.run import Run

RESAMPLES = 1000
"""Sets of images behind an interval: the page is written after every step of a training."""


@dataclass(frozen=True)
class StepView:
    """One step: its metrics, and, where the evaluation left a record, the record and what follows from it."""

    metrics: StepMetrics
    record: EvaluationRecord | None

    @property
    def number(self) -> int:
        """Number of the step."""
        return self.metrics.step

    @cached_property
    def audit(self) -> Audit | None:
        """Every measure of the record."""
        return None if self.record is None else audit_record(self.record, resamples=RESAMPLES)

    @cached_property
    def flows(self) -> dict[int, LostPixels]:
        """Where the pixels of every present class went, by raw id."""
        return {} if self.record is None else {one.id: one for one in lost_pixels(self.record)}

    @cached_property
    def classes(self) -> dict[int, ClassMetrics]:
        """The classes that the step knows, by raw id."""
        return {c.id: c for c in self.metrics.classes}

    @cached_property
    def audited(self) -> dict[int, ClassAudit]:
        """The classes of the audit, by raw id."""
        return {} if self.audit is None else {c.id: c for c in self.audit.classes}

    def iou(self, id: int) -> float:
        """IoU of a class; NaN where the step does not know it or no truth pixel is there."""
        return self.classes[id].iou if id in self.classes else math.nan


@dataclass(frozen=True)
class RunView:
    """The steps of a run that a page shows, at least one, and its classes, the most frequent first."""

    run: Run
    steps: tuple[StepView, ...]
    classes: tuple[ClassMetrics, ...]
    unread: tuple[str, ...] = ()
    """Why records could not be read."""

    @property
    def final(self) -> StepView:
        """The last step shown."""
        return self.steps[-1]

    @property
    def metrics(self) -> list[StepMetrics]:
        """Metrics of all steps shown."""
        return [one.metrics for one in self.steps]

    @cached_property
    def planned(self) -> int:
        """Number of steps of the scenario; those shown where it is not known."""
        return max(len(self.run.scenario_tree.get("steps", [])), self.final.number + 1)

    @property
    def evaluated(self) -> bool:
        """Whether the last step was evaluated: an adopted network without labelled images was not."""
        return any(c.pixels for c in self.classes)

    @property
    def comparable(self) -> bool:
        """Whether several classes have an IoU, so that one of them can be the worst."""
        return len(self.scored) > 1

    @property
    def scored(self) -> list[ClassMetrics]:
        """The classes that have an IoU after the last step."""
        return [c for c in self.classes if not math.isnan(c.iou)]

    @cached_property
    def lost(self) -> dict[int, float]:
        """Forgetting of every class in points, by raw id; NaN for classes that the last step learned."""
        return forgotten(self.metrics)

    @cached_property
    def pixels(self) -> dict[int, int]:
        """Pixels of every class by raw id: of the evaluated images, or of the training images if none was evaluated."""
        evaluated = {c.id: c.pixels for c in self.classes}
        return evaluated if any(evaluated.values()) else evaluated | self.run.train_pixels

    def share(self, id: int) -> float:
        """Share of a class among the pixels of ``pixels``, in percent."""
        return 100 * self.pixels[id] / max(1, sum(self.pixels[c.id] for c in self.classes))

    def learned_at(self, step: int) -> list[str]:
        """Names of the classes that a step learned, without the background."""
        names = [c for c in self.final.metrics.classes if c.learned_at == step]
        skip = self.final.metrics.background and step == 0
        return [c.name for c in names[int(skip) :]]

    @property
    def without_record(self) -> list[int]:
        """Numbers of the steps whose evaluation left no record."""
        return [one.number for one in self.steps if one.record is None]


def view_run(run: Run, step: int | None = None) -> RunView:
    """Return what a page shows of a run, by default all its steps, otherwise those up to ``step``."""
    numbers = [metrics.step for metrics in run.steps]
    if step is not None and -len(numbers) <= step < 0:
        step = numbers[step]
    if step is not None and step not in numbers:
        known = ", ".join(map(str, numbers))
        raise UserError(f"Run {run.folder} has no evaluation after step {step}; it has: {known}.")
    shown = [metrics for metrics in run.steps if step is None or metrics.step <= step]
    records, unread = _readable(run)
    steps = tuple(StepView(metrics, _matching(records.get(metrics.step), metrics)) for metrics in shown)
    return RunView(run, steps, _by_frequency(run, shown), tuple(unread))


def _readable(run: Run) -> tuple[dict[int, EvaluationRecord], list[str]]:
    """Return the records of a run by step, and why others could not be read: a damaged one costs a page its charts."""
    records, unread = {}, []
    for path in run.record_files:
        try:
            record = load_record(path)
        except UserError as error:
            unread.append(str(error))
        else:
            records[record.step] = record
    return records, unread


def _matching(record: EvaluationRecord | None, metrics: StepMetrics) -> EvaluationRecord | None:
    """Return the record of a step if it is of the same evaluation: an edited version may have other classes."""
    if record is None or [c.id for c in record.classes] != [c.id for c in metrics.classes]:
        return None
    return record


def _by_frequency(run: Run, steps: Sequence[StepMetrics]) -> tuple[ClassMetrics, ...]:
    final = steps[-1].classes
    pixels = {c.id: c.pixels for c in final}
    if not any(pixels.values()):
        pixels |= run.train_pixels
    return tuple(sorted(final, key=lambda c: -pixels[c.id]))
