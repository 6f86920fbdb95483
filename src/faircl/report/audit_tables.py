"""The tables of an audit: measures with their mean, classes by frequency, groups of images, what was lost."""

from __future__ import annotations

import math
from typing import Any

from faircl.fairness.audit import Audit
from faircl.fairness.difference import Difference
from faircl.fairness.intervals import Interval
from faircl.fairness.record import EvaluationRecord
from faircl.report.numbers import counted
from faircl.report.worst_class import equally_bad
from faircl.tables import Column, Styled, Table, Value, show

MOST_CLASSES = 40
"""Classes whose confusion is shown as a table."""
ENDS = (Column("low", 1), Column("high", 1))
"""The ends of an interval, numbers in every format."""
NONE = "none"
"""Heading of pixels that no class was predicted for."""


def headline_table(audit: Audit, title: str = "") -> Table:
    """One row per measure, the mean IoU first; the worst class has its own class's interval."""
    worst = audit.worst
    rows: list[list[Value]] = [
        ["mean IoU", audit.miou, *_ends(audit.miou_interval)],
        ["STD of class IoUs", audit.std, *_ends(audit.std_interval)],
        ["gap, best minus worst class", audit.gap, *_ends(None)],
        ["error gap", audit.error_gap, *_ends(None)],
    ]
    if worst is not None:
        equals = len(equally_bad(worst, audit.classes))
        name = f"worst class: {worst.name}" + (f", and {counted(equals, 'other')} equal to it" if equals else "")
        rows.append([name, worst.iou, *_ends(worst.interval)])
        if audit.worst_k > 1:
            rows.append([f"mean of the {audit.worst_k} worst", audit.worst_k_mean, *_ends(None)])
    rows.append(["frequent classes (major)", audit.major_miou, *_ends(None)])
    rows.append(["other classes (minor)", audit.minor_miou, *_ends(None)])
    rows.append([f"worst {audit.worst_share:g} % of the images", audit.worst_image_miou, *_ends(None)])
    if not math.isnan(audit.calibration_error):
        rows.append(["calibration error", audit.calibration_error, *_ends(None)])
    images = f"{audit.images:,} image{'s' * (audit.images != 1)}"
    caption = f"{images}; low and high: ends of the {100 * audit.confidence:g} % interval, by resampling images"
    return Table([Column("measure"), Column("percent", 1), *ENDS], rows, title=title, caption=caption)


def class_table(audit: Audit) -> Table:
    """One row per class, the most frequent first."""
    worst = audit.worst
    rows: list[list[Value]] = []
    for one in sorted(audit.classes, key=lambda c: -c.pixels):
        iou: Value = Styled(one.iou, "bold red") if worst and one.id == worst.id else one.iou
        rows.append([one.name, one.id, iou, *_ends(one.interval), one.accuracy, one.error_rate, one.pixels])
        rows[-1] += [one.share, one.images]
    columns = [Column("class"), Column("id", wrap=False), Column("IoU", 1), *ENDS]
    columns += [
        Column("accuracy", 1),
        Column("error rate", 1, detail=True),
        Column("pixels"),
        Column("% of pixels", 2),
    ]
    caption = f"low and high: ends of the {100 * audit.confidence:g} % interval of the IoU"
    return Table(
        [*columns, Column("images", detail=True)], rows, title="Classes, the most frequent first", caption=caption
    )


def group_tables(audit: Audit) -> list[Table]:
    """One table per attribute: the groups of images by mean IoU, the lowest first."""
    return [_group_table(attribute) for attribute in audit.groups]


def difference_table(difference: Difference) -> Table:
    """One row for the mean IoU, the STD and every class: before, after, what was gained; the largest loss first."""
    changes: list[tuple[str, Any]] = [("mean IoU", difference.miou), ("STD", difference.std)]
    known = [(c.name, c) for c in difference.classes if not math.isnan(c.difference)]
    changes += sorted(known, key=lambda item: item[1].difference)
    rows: list[list[Value]] = [
        [name, one.before, one.after, one.difference, *_ends(one.interval)] for name, one in changes
    ]
    columns = [Column("measure"), Column("before", 1), Column("after", 1), Column("change", 1), *ENDS]
    caption = (
        f"{difference.images:,} images of both; low and high: ends of the {100 * difference.confidence:g} % interval "
        "of the change, paired over images"
    )
    return Table(columns, rows, title="Against the earlier audit", caption=caption)


def confusion_table(record: EvaluationRecord) -> Table | None:
    """Where the pixels of every class went, in percent of its pixels; None above `MOST_CLASSES` classes."""
    if len(record.classes) > MOST_CLASSES:
        return None
    counts = record.confusion()
    totals = counts.sum(axis=1)
    present = [k for k in range(len(counts)) if totals[k] > 0]
    none = counts[:, -1].any()
    heads = [Column(c.name, 1) for c in record.classes] + ([Column(NONE, 1)] if none else [])
    shares = (100 * counts[k, : len(heads)] / totals[k] for k in present)
    rows: list[list[Value]] = [
        [record.classes[k].name, *(share or None for share in row.tolist())]
        for k, row in zip(present, shares, strict=True)
    ]
    return Table([Column("truth \\ predicted"), *heads], rows)


def _group_table(attribute: Any) -> Table:
    rows: list[list[Value]] = [
        [one.value, one.images, one.miou, *_ends(one.miou_interval), one.std, one.worst, one.worst_iou]
        for one in sorted(attribute.groups, key=lambda group: (math.isnan(group.miou), group.miou))
    ]
    columns = [Column(attribute.name), Column("images"), Column("mean IoU", 1), *ENDS]
    columns += [Column("STD", 1), Column("worst class"), Column("its IoU", 1)]
    caption = (
        f"mean IoU: minimum {show(attribute.group_min, 1)}, maximum {show(attribute.group_max, 1)}, "
        f"difference {show(attribute.difference, 1)}, ratio {show(attribute.ratio, 2)}"
    )
    return Table(columns, rows, title=f"Images by {attribute.name}", caption=caption)


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval.low, interval.high)
