"""The measures of an audit as rows of a page: name, value, interval, and one line that says what it means."""

from __future__ import annotations

import math
from typing import NamedTuple

from faircl.fairness.audit import Audit
from faircl.fairness.intervals import Interval
from faircl.metrics import StepMetrics
from faircl.tables import show


class MeasureRow(NamedTuple):
    """One measure, as it is shown."""

    name: str
    value: str
    interval: str
    about: str


def measure_rows(metrics: StepMetrics, audit: Audit | None) -> list[MeasureRow]:
    """Return the measures of a step; those that need a record only where there is one."""
    all_ = metrics.groups["all"]
    rows = [
        _row("Mean IoU", all_.miou, audit and audit.miou_interval, "mean of the class IoUs, every class alike"),
        _row("STD", all_.std, audit and audit.std_interval, "standard deviation of the class IoUs, in points"),
        _row("Gap", metrics.gap, None, "best class IoU minus the worst, in points"),
        _row("Error gap", metrics.error_gap, None, "largest difference between two classes' error rates, in points"),
        _row("Rarest third", metrics.rarest_third, None, "mean IoU of the third of the classes with fewest pixels"),
        _row("Most frequent third", metrics.frequent_third, None, "mean IoU of the third with most pixels"),
        _row("Pixel accuracy", metrics.pixel_accuracy, None, "pixels that are right, whatever their class"),
        _row("Mean accuracy", metrics.mean_accuracy, None, "mean over the classes of the pixels that are right"),
    ]
    return [row for row in rows if row is not None]


def _row(name: str, value: float, interval: Interval | None, about: str, digits: int = 1) -> MeasureRow | None:
    if math.isnan(value):
        return None
    shown = "" if interval is None else f"{show(interval.low, digits)} – {show(interval.high, digits)}"
    return MeasureRow(name, show(value, digits), shown, about)
