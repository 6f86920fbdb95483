"""Points of charts: the numbers of a record of metrics.jsonl under keys that every logging service accepts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from faircl.runs.reading import Record

LONGEST_NAME = 80
"""Characters of a class's name in a key; services limit keys, MLflow to 250."""
KINDS = ("train", "validation", "eval")
"""Kinds of records that are charted, in the order in which those of one update come."""
_MEASURES = ("std", "gap", "error_gap", "rarest_third", "mean_forgetting", "average_over_steps")


class Position(NamedTuple):
    """Place of a record among all records of a run: updates since the run began, then train, validation, eval."""

    update: int
    order: int


BEFORE_ALL = Position(-1, 0)


class Point(NamedTuple):
    """The finite numbers of one record."""

    position: Position
    step: int
    scalars: dict[str, float]


def point(record: Record, updates: Sequence[int]) -> Point:
    """Return the point of a record; ``updates`` has the planned number of updates of every step.

    Keys are ``step0/loss``, ``step0/lr``, ``step0/terms/NAME``, ``step0/measures/NAME`` while step 0 trains,
    ``step0/validation/…`` for its validations and ``eval/…`` after every step.
    """
    kind, step = record["kind"], record["step"]
    if kind == "train":
        found = {key: record.get(key) for key in ("loss", "lr")}
        found |= {f"{part}/{key(name)}": value for part in ("terms", "measures") for name, value in _of(record, part)}
        scalars = {f"step{step}/{name}": value for name, value in found.items()}
    else:
        prefix = "eval" if kind == "eval" else f"step{step}/validation"
        scalars = {f"{prefix}/{name}": value for name, value in _scores(record).items()}
    finite = {name: float(value) for name, value in scalars.items() if value is not None and math.isfinite(value)}
    return Point(position(record, updates), step, finite)


def position(record: Record, updates: Sequence[int]) -> Position:
    """Return the place of a record; an evaluation comes after the last update that was planned for its step."""
    kind, step = record["kind"], record["step"]
    update = sum(updates[: step + 1]) if kind == "eval" else sum(updates[:step]) + record["iteration"]
    return Position(update, KINDS.index(kind))


def key(name: str) -> str:
    """Return a name of a term or measure with letters, digits, ``_`` and ``-`` only, between slashes.

    >>> key("bound/left side")
    'bound/left_side'
    """
    return "/".join(map(_word, name.split("/")))


def class_key(id: int, name: str) -> str:
    """Return the key of a class: its id, which makes it unique, and its name with other characters replaced.

    >>> class_key(3, "a/b <script>")
    '3_a_b__script_'
    """
    return f"{id}_{_word(name)[:LONGEST_NAME]}"


def _scores(record: Record) -> dict[str, float | None]:
    """Return mIoU and spread of the classes, the IoU of the worst, and the IoU of every class."""
    scores = {f"miou/{group}": value for group, value in _of(record, "miou")}
    scores |= {name: record.get(name) for name in _MEASURES}
    scores["worst"] = (record.get("worst") or {}).get("iou")
    return scores | {f"iou/{class_key(row['id'], row['name'])}": row["iou"] for row in record.get("classes", ())}


def _of(record: Record, part: str) -> list[tuple[str, Any]]:
    values = record.get(part)
    return list(values.items()) if isinstance(values, Mapping) else []


def _word(text: str) -> str:
    return "".join(one if one.isalnum() or one in "_-" else "_" for one in text) or "_"
