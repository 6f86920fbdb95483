"""Reading the files of a run folder; a damaged file raises a UserError."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from faircl.config.renamed import with_new_keys
from faircl.config.yaml_text import read_yaml
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.metrics import StepMetrics

CONFIG, SCENARIO, METRICS, ENVIRONMENT = "config.yaml", "scenario.json", "metrics.jsonl", "environment.json"
DATA = "data.json"
MODEL_FILES = ("model.json", "model.safetensors")
STEP_FILES = (*MODEL_FILES, "method.json", "method.safetensors")
EXPORTED_RUN = "faircl"
"""Folder of the run inside a folder that was exported for the Hugging Face hub."""
ADOPTED = "adopted.json"
"""What the first step was made from, in a run whose network was trained elsewhere."""
Record = dict[str, Any]
"""A line of metrics.jsonl: ``kind`` is ``train``, ``validation`` or ``eval``, ``step`` the number of its step."""


@dataclass(frozen=True)
class TrainRecord:
    """Loss at one iteration of a step; ``iterations`` is the length of the step, ``terms`` the weighted loss terms.

    ``measures`` are numbers that the method recorded beside them.
    """

    step: int
    iteration: int
    iterations: int
    loss: float
    terms: dict[str, float]
    measures: dict[str, float] = field(default_factory=dict)


BEFORE: Mapping[str, Mapping[str, Any]] = {"faircl": {"lambda_iou": 0.0}}
"""By method: settings that runs of earlier versions do not name, as these trained; the defaults differ."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of a run as plain values, under their present names, with those of BEFORE that it lacks."""
    path = folder / CONFIG
    try:
        tree = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise UserError(f"Cannot read {path}: {' '.join(str(error).split())}; the run folder is damaged.") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path} holds no settings; the run folder is damaged.")
    tree = with_new_keys(tree, warn=False)
    return tree | {"method": _as_before(tree["method"])} if isinstance(tree.get("method"), dict) else tree


def _as_before(method: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a method, and of those inside it, with the values of BEFORE where they are missing."""
    if isinstance(method.get("method"), dict):
        method = method | {"method": _as_before(method["method"])}
    return {**BEFORE.get(str(method.get("name")), {}), **method}


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path}: {error}; the run folder is damaged.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object; the run folder is damaged.")
    return value


def read_records(folder: Path) -> list[Record]:
    """Return the records of metrics.jsonl in order; none where the file does not exist.

    A last line without its line break is left out: a process that was killed, or is still writing, may leave one.
    """
    path = folder / METRICS
    if not path.is_file():
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path}: {error}; the run folder is damaged.") from None
    lines = text.splitlines()
    records = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines) and not text.endswith("\n"):
                break
            raise UserError(f"{path} is damaged: line {number} is not JSON ({error}); remove the line.") from None
        if not isinstance(record, dict) or not {"kind", "step"} <= record.keys():
            raise UserError(f"{path} is damaged: line {number} is without a kind and a step; remove the line.")
        records.append(record)
    return records


def evaluations(records: Iterable[Record]) -> dict[int, Record]:
    """Return the evaluation of every step, in order; where a resumed run recorded a step twice, the later one."""
    found = {record["step"]: record for record in records if record["kind"] == "eval"}
    return {step: found[step] for step in sorted(found)}


def step_metrics(records: Iterable[Record]) -> list[StepMetrics]:
    """Return the metrics of every evaluated step, in order."""
    from faircl.metrics import StepMetrics  # imports torch, which reading settings should not wait for

    return [StepMetrics.from_json(record) for record in evaluations(records).values()]


def train_records(records: Iterable[Record]) -> list[TrainRecord]:
    """Return the losses by step and iteration; where a resumed run recorded an iteration twice, the later one."""
    found: dict[tuple[int, int], TrainRecord] = {}
    for record in (record for record in records if record["kind"] == "train"):
        terms, measures = _numbers(record.get("terms")), _numbers(record.get("measures"))
        step, iteration = record["step"], record["iteration"]
        found[step, iteration] = TrainRecord(
            step, iteration, record["iterations"], _number(record["loss"]), terms, measures
        )
    return [found[key] for key in sorted(found)]


def _numbers(values: Any) -> dict[str, float]:
    return {name: _number(value) for name, value in values.items()} if isinstance(values, Mapping) else {}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
