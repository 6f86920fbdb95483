"""The tables of a run and of a comparison of runs. IoUs and their means are percent, differences percent points."""

from __future__ import annotations

import math
from collections.abc import Sequence

from faircl.fairness.audit import Audit
from faircl.metrics import StepMetrics, forgetting
from faircl.runs.run import Run
from faircl.tables import Column, Table, Value

_MEASURES = (
    Column("mIoU old", best="max"),
    Column("mIoU new", best="max"),
    Column("mIoU all", best="max"),
    Column("STD", best="min"),
    Column("Gap", best="min"),
    Column("Error gap", best="min"),
    Column("Worst class"),
    Column("Its IoU", best="max"),
    Column("Rarest third", best="max"),
    Column("Frequent third", best="max"),
)


def step_table(steps: Sequence[StepMetrics], run: Run) -> Table:
    """One row per step: group means, fairness, mean forgetting of the old classes, training speed."""
    rows: list[list[Value]] = []
    for k, metrics in enumerate(steps):
        lost = forgetting(steps[: k + 1]).mean
        speed = run.images_per_second.get(metrics.step)
        rows.append([str(metrics.step), len(metrics.classes), *_measures(metrics), lost, speed])
    # No best value: steps are not compared with each other.
    measures = [column._replace(best=None) for column in _MEASURES]
    return Table([Column("Step"), Column("Classes"), *measures, Column("Forgetting"), Column("Images/s", 1)], rows)


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


def comparison_table(runs: Sequence[tuple[str, Run]]) -> Table:
    """One row per run, after its last step; the best value of each column is marked.

    Where classes came in several later steps, those of the first step and all added ones have columns too, headed as in
    published tables.
    """
    published = shared_groups([run.final for _, run in runs])
    rows: list[list[Value]] = []
    for label, run in runs:
        lost = forgetting(run.steps).mean
        groups = [run.final.groups[group].miou for group in published]
        rows.append([label, *groups, *_measures(run.final), lost, run.average])
    columns = (Column(f"mIoU {name}", best="max") for name in published.values())
    more = (Column("Forgetting", best="min"), Column("Average", best="max"))
    return Table([Column("Run"), *columns, *_MEASURES, *more], rows)


def shared_groups(finals: Sequence[StepMetrics]) -> dict[str, str]:
    """Return ``published_groups`` if they are the same for all runs and not their old and new classes; else nothing."""
    first = finals[0].published_groups
    shown = all(final.published_groups == first and final.several_additions for final in finals)
    return first if shown else {}


def class_comparison_table(runs: Sequence[tuple[str, Run]]) -> Table:
    """One row per class, one column of final IoUs per run; classes are matched by raw id, each row's best is marked."""
    known = {c.id: c for _, run in reversed(runs) for c in run.final.classes}
    ious = [{c.id: c.iou for c in run.final.classes} for _, run in runs]
    rows: list[list[Value]] = [[c.name, c.pixels, *(iou.get(c.id) for iou in ious)] for c in known.values()]
    columns = [Column("Class"), _pixels(runs[0][1]), *(Column(label, best="max") for label, _ in runs)]
    return Table(columns, rows, best_by_row=True)


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
