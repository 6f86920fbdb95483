"""The page of an audit: one self-contained HTML file, readable offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from faircl.auditing.limits import LimitCheck
from faircl.fairness.audit import Audit
from faircl.fairness.difference import Difference
from faircl.fairness.record import EvaluationRecord
from faircl.report import audit_tables as tables
from faircl.report.numbers import counted, percent
from faircl.report.rendering import write_page
from faircl.report.worst_class import served_worst
from faircl.tables import Column, Table, show


def write_audit_page(
    path: Path,
    record: EvaluationRecord,
    audit: Audit,
    title: str,
    *,
    checks: Sequence[LimitCheck] = (),
    difference: Difference | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write the page of an audit, whole or not at all, and return its path."""
    return write_page(
        path,
        "audit.html.j2",
        "choose another folder with --out",
        title=title,
        summary=audit_summary(audit, checks),
        headline=tables.headline_table(audit),
        limits=_limits_table(checks),
        difference=None if difference is None else tables.difference_table(difference),
        classes=tables.class_table(audit),
        groups=tables.group_tables(audit),
        confusion=tables.confusion_table(record),
        notes=notes,
    )


def audit_summary(audit: Audit, checks: Sequence[LimitCheck]) -> str:
    """Return the result in plain sentences."""
    shown = sum(one.pixels > 0 for one in audit.classes)
    where = f"{counted(shown, 'class', 'classes')} in {counted(audit.images, 'image')}"
    text = [f"Mean IoU {percent(audit.miou)} over {where}"]
    if audit.worst is not None and shown > 1:
        worst = served_worst(audit.worst, audit.classes)
        text.append(
            f"Class IoUs spread by a standard deviation of {show(audit.std, 1)} points around that mean; "
            f"{worst}, at {percent(audit.worst.iou)}"
        )
    if checks:
        broken = sum(not one.holds for one in checks)
        text.append(counted(broken, "limit is broken", "limits are broken") if broken else "All limits hold")
    return ". ".join(text) + "."


def _limits_table(checks: Sequence[LimitCheck]) -> Table | None:
    if not checks:
        return None
    rows = [["holds" if one.holds else "broken", one.limit.replace("_", " "), one.text] for one in checks]
    return Table([Column("state"), Column("limit"), Column("found")], rows)
