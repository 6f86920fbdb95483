"""The classes after a step, for the terminal: IoU now, its change since the step before, share of the pixels."""

from __future__ import annotations

from collections.abc import Sequence

from faircl.runs.reading import Record, evaluations
from faircl.tables import Column, Table, show

MAX_CLASSES = 24
"""Classes that are all listed; of more than these only the worst are."""
WORST = 20


def class_table(step: int, record: Record, before: Sequence[Record]) -> str:
    """Return a step's classes as lines, old ones before new ones and the worst of each first, and their means.

    ``record`` is the evaluation of the step, ``before`` the records of earlier steps.
    """
    earlier = list(evaluations(before).values())
    last = {row["id"]: row["iou"] for row in earlier[-1]["classes"]} if earlier else {}
    rows, listed = record["classes"], sorted(record["classes"], key=_iou)
    if len(listed) > MAX_CLASSES:
        listed = listed[:WORST]
    listed.sort(key=lambda row: row["learned_at"] == record["step"])
    pixels = max(sum(row["pixels"] for row in rows), 1)
    columns = [
        Column("class", wrap=False),
        Column("learned at"),
        Column("IoU", 1),
        Column("change", 1),
        Column(f"{record.get('images', 'test')} pixels", 1, kind="percent"),
    ]
    table = Table(
        columns,
        [[row["name"], row["learned_at"], row["iou"], _change(row, last), row["pixels"] / pixels] for row in listed],
        caption=f"the {WORST} worst; {len(rows) - WORST} more in metrics.csv" if len(listed) < len(rows) else "",
    )
    on = "" if record.get("images", "test") == "test" else f", {record['images']} images"
    means = [f"{group} {show(value, 1)}" for group, value in record["miou"].items() if value is not None]
    return f"{table.plain()}after step {step}: {', '.join(means)}, STD {show(record['std'], 1)} (IoU in percent{on})"


def _iou(row: Record) -> float:
    """Return the IoU to sort by; absent classes come last."""
    return float("inf") if row["iou"] is None else row["iou"]


def _change(row: Record, last: dict[int, float | None]) -> float | None:
    then = last.get(row["id"])
    return None if then is None or row["iou"] is None else row["iou"] - then
