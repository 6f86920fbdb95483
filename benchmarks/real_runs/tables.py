"""Tables of results in Markdown: methods, classes over steps, ablation. IoUs are percent."""

from __future__ import annotations

import math
from collections.abc import Sequence

from faircl.tables import Column, MeanStd, Table, Value
from real_runs.choosing import MEASURES, mean, measure, paired, spread
from real_runs.results import Result, only

_HEADS = {"average": "average over steps", "std": "STD", "worst": "worst class"}
_UNITS = "after the last step, in percent; mean and sample standard deviation over seeds"


def comparison_table(results: Sequence[Result], labels: Sequence[str]) -> Table:
    """One row per label: every measure after the last step, mean ± standard deviation over its seeds."""
    rows: list[list[Value]] = []
    for label in labels:
        own = only(results, label=label)
        rows.append([label, len(own), *(_over_seeds([measure(result, name) for result in own]) for name in MEASURES)])
    columns = [Column("method"), Column("seeds"), *(Column(_HEADS.get(name, name), 1) for name in MEASURES)]
    return Table(columns, rows, caption=f"mIoU, STD and IoU of the worst class {_UNITS}.")


def class_table(results: Sequence[Result], label: str) -> Table:
    """One row per class: its IoU after every step, mean over the label's seeds."""
    own = only(results, label=label)
    steps = [step["step"] for step in own[0]["steps"]]
    rows: list[list[Value]] = []
    for name in own[0]["steps"][-1]["classes"]:
        ious = [[result["steps"][k]["classes"].get(name) for result in own] for k in range(len(steps))]
        rows.append([name, *(mean([math.nan if iou is None else iou for iou in after]) for after in ious)])
    return Table([Column("class"), *(Column(f"after step {step}", 1) for step in steps)], rows, title=label)


def ablation_table(results: Sequence[Result], reference: str, labels: Sequence[str]) -> Table:
    """One row per label: its difference to a reference, paired by seed, mean ± standard error."""
    base = only(results, label=reference)
    rows: list[list[Value]] = [[reference, len(base), *(mean([measure(r, name) for r in base]) for name in MEASURES)]]
    for label in labels:
        found = [paired(only(results, label=label), base, name) for name in MEASURES]
        rows.append([label, found[0].seeds, *(_signed(*difference[:2]) for difference in found)])
    columns = [Column("settings"), Column("seeds"), *(Column(_HEADS.get(name, name), 1) for name in MEASURES)]
    caption = f"First row: values. Others: difference to {reference} on the same seeds, mean ± standard error."
    return Table(columns, rows, caption=caption)


def settings_table(results: Sequence[Result], labels: Sequence[str]) -> Table:
    """One row per label: the settings that the plan gave it."""
    rows = [[label, ", ".join(only(results, label=label)[0]["settings"]) or "–"] for label in labels]
    return Table([Column("method"), Column("settings")], rows)


def _over_seeds(values: Sequence[float]) -> Value:
    return mean(values) if len(values) < 2 else MeanStd(mean(values), spread(values))


def _signed(difference: float, error: float) -> str:
    if math.isnan(difference):
        return "–"
    return f"{difference:+.1f}" + ("" if math.isnan(error) else f" ± {error:.1f}")
