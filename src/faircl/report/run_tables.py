"""The tables of a run. IoUs and their means are percent, differences percent points."""

from __future__ import annotations

import math
from collections.abc import Sequence

from faircl.fairness.audit import Audit
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


def step_table(steps: Sequence[StepMetrics], run: Run) -> Table:
    """One row per step: group means, fairness, mean forgetting of the old classes, training speed."""
    rows: list[list[Value]] = []
    for k, metrics in enumerate(steps):
        lost = forgetting(steps[: k + 1]).mean
        speed = run.images_per_second.get(metrics.step)
        rows.append([str(metrics.step), len(metrics.classes), *_measures(metrics), lost, speed])
    return Table([Column("Step"), Column("Classes"), *_MEASURES, Column("Forgetting"), Column("Images/s", 1)], rows)


def class_table(steps: Sequence[StepMetrics], run: Run, audit: Audit | None = None) -> Table:
    """One row per class: when it was learned, its pixels, its IoU after each step, what it lost since its best.

    With an audit of the last step also the images that show it, its IoU image by image and its calibration error.
    """
    lost = forgetting(steps).classes
    audited = {c.id: c for c in audit.classes} if audit else {}
    ious = [{c.id: c.iou for c in metrics.classes} for metrics in steps]
    rows: list[list[Value]] = []
    for c in steps[-1].classes:
        history: list[Value] = [iou.get(c.id, math.nan) for iou in ious]
        train = run.train_pixels.get(c.id)
        own = audited.get(c.id)
        more: list[Value] = [own.images, own.image_iou, own.calibration_error] if own else []
        rows.append([c.name, c.learned_at, train, c.pixels, *history, c.error_rate, lost[c.name], *more])
    after = [Column(f"IoU after step {metrics.step}") for metrics in steps]
    head = (Column("Class"), Column("Learned at"), Column("Training pixels"), _pixels(run))
    more_columns = [Column("Images"), Column("IoU by image"), Column("Calibration error")] if audit else []
    return Table([*head, *after, Column("Error rate"), Column("Forgetting"), *more_columns], rows)


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
