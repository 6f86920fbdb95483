"""The tables of a run. IoUs and their means are percent, differences percent points."""

from __future__ import annotations

import math

from faircl.metrics import StepMetrics, forgetting
from faircl.runs.run import Run
from faircl.tables import Column, Table, Value

_MEASURES = (
    Column("mIoU old"),
    Column("mIoU new"),
    Column("mIoU all"),
    Column("STD"),
    Column("Gap"),
    Column("Error gap"),
    Column("Worst class"),
    Column("Its IoU"),
    Column("Rarest third"),
    Column("Frequent third"),
)


def step_table(run: Run) -> Table:
    """One row per step: group means, fairness, mean forgetting of the old classes, training speed."""
    rows: list[list[Value]] = []
    for k, metrics in enumerate(run.steps):
        lost = forgetting(run.steps[: k + 1]).mean
        speed = run.images_per_second.get(metrics.step)
        rows.append([str(metrics.step), len(metrics.classes), *_measures(metrics), lost, speed])
    return Table([Column("Step"), Column("Classes"), *_MEASURES, Column("Forgetting"), Column("Images/s", 1)], rows)


def class_table(run: Run) -> Table:
    """One row per class: when it was learned, its pixels, its IoU after each step, what it lost since its best."""
    lost = forgetting(run.steps).classes
    ious = [{c.id: c.iou for c in metrics.classes} for metrics in run.steps]
    rows: list[list[Value]] = []
    for c in run.final.classes:
        history: list[Value] = [iou.get(c.id, math.nan) for iou in ious]
        train = run.train_pixels.get(c.id)
        rows.append([c.name, c.learned_at, train, c.pixels, *history, c.error_rate, lost[c.name]])
    after = [Column(f"IoU after step {metrics.step}") for metrics in run.steps]
    head = (Column("Class"), Column("Learned at"), Column("Training pixels"), _pixels(run))
    return Table([*head, *after, Column("Error rate"), Column("Forgetting")], rows)


def _pixels(run: Run) -> Column:
    return Column(f"{run.final.images.capitalize()} pixels")


def _measures(metrics: StepMetrics) -> list[Value]:
    worst = metrics.worst
    return [
        *(metrics.groups[g].miou for g in ("old", "new", "all")),
        metrics.groups["all"].std,
        metrics.gap,
        metrics.error_gap,
        worst.name if worst else None,
        worst.iou if worst else None,
        metrics.rarest_third,
        metrics.frequent_third,
    ]
