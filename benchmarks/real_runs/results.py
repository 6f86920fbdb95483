"""Results as JSON lines, one per run: of validation images in results.jsonl, of test images in test.jsonl."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faircl.errors import UserError
from faircl.runs.reading import ENVIRONMENT, evaluations, read_json, read_records
from real_runs.plan import Job

Result = dict[str, Any]
"""A line: run, benchmark, label, family, role, settings, seed, images, commit, hardware, seconds, average, steps.

``settings`` are those of the row, ``shared_settings`` those of the whole plan; all are in the run's config.yaml.
A step has ``old``, ``new``, ``all``, ``std``, ``worst`` (IoU), ``worst_class``, ``classes`` (IoU by name) and, of the
run's own evaluation, ``seconds`` of training; IoUs are percent, None where there is none. ``average`` is the mean of
``all`` over steps, None for joint training, which has one.
"""


class Results:
    """A file of results, read at once and appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Result]:
        """Return the last result of each run; part of a last line, which a killed process may leave, is dropped."""
        if not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        found = (json.loads(line) for line in whole.splitlines() if line)
        return list({result["run"]: result for result in found}.values())

    def runs(self) -> set[str]:
        """Return the names of the runs that have a result."""
        return {result["run"] for result in self.read()}

    def append(self, result: Result) -> None:
        """Append a result and flush it to the disk."""
        self._drop_part_of_a_line()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _drop_part_of_a_line(self) -> None:
        if self.path.is_file() and not (text := self.path.read_bytes()).endswith(b"\n"):
            os.truncate(self.path, text.rfind(b"\n") + 1)


def run_result(job: Job, folder: Path, commit: str = "") -> Result:
    """Return the result of a finished run by its own evaluations; ``commit`` is for sources without git."""
    environment = read_json(folder / ENVIRONMENT)
    hardware = environment["gpu"] if environment["gpu"] != "none" else environment["cpu"]
    records = list(evaluations(read_records(folder)).values())
    about = {
        "run": job.name,
        "benchmark": job.benchmark,
        "label": job.label,
        "family": job.family or job.label,
        "role": job.role,
        "settings": list(job.settings),
        "shared_settings": list(job.shared),
        "seed": job.seed,
        "commit": environment["commit"] or commit,
        "hardware": f"{hardware}, torch {environment['torch']}",
    }
    return about | evaluated(records) | {"seconds": sum(record["seconds"] for record in records)}


def evaluated(records: Sequence[Mapping[str, Any]]) -> Result:
    """Return the part of a result that follows from the evaluations of its steps, as ``faircl eval --json`` prints."""
    steps = [_step(record) for record in records]
    whole = [record["step"] for record in records] == list(range(len(records))) and len(records) > 1
    average = math.fsum(step["all"] for step in steps) / len(steps) if whole else None
    return {"images": records[-1]["images"], "average": average, "steps": steps}


def only(results: Iterable[Result], **wanted: Any) -> list[Result]:
    """Return the results whose fields have these values."""
    return [result for result in results if all(result[key] == value for key, value in wanted.items())]


def check_labels(results: Iterable[Result]) -> None:
    """Raise a UserError if one label stands for runs of different settings on a benchmark."""
    first: dict[tuple[str, str], Result] = {}
    seeds: set[tuple[str, str, int]] = set()
    for result in results:
        row = result["benchmark"], result["label"]
        other = first.setdefault(row, result)
        keys = ("settings", "shared_settings", "family", "role")
        if (*row, result["seed"]) in seeds or any(result[key] != other[key] for key in keys):
            raise UserError(
                f"Runs {other['run']} and {result['run']} of label '{row[1]}' have different settings; name the plan "
                "whose rows to show (--plan), or give the rows different labels."
            )
        seeds.add((*row, result["seed"]))


def _step(record: Mapping[str, Any]) -> dict[str, Any]:
    step = {
        "step": record["step"],
        **record["miou"],
        "std": record["std"],
        "worst": record["worst"]["iou"],
        "worst_class": record["worst"]["name"],
        "classes": {row["name"]: row["iou"] for row in record["classes"]},
    }
    return step | ({"seconds": record["seconds"]} if "seconds" in record else {})
