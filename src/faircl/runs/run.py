"""What a run folder says: its configuration, scenario, evaluations, losses and example pictures."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from faircl.config.describe import method_words
from faircl.config.run import RunConfig
from faircl.errors import UserError
from faircl.metrics import StepMetrics, average_over_steps
from faircl.runs.folder import RunFolder
from faircl.scenario import Scenario, short_task


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


@dataclass(frozen=True)
class Run:
    """A finished or running run, read once. ``steps`` holds one evaluation per step, in order, at least one.

    ``config_tree`` and ``scenario_tree`` are config.yaml and scenario.json as they stand; ``config`` and ``scenario``
    are the objects made of them.
    """

    folder: Path
    config_tree: dict[str, Any] = field(repr=False)
    config_text: str = field(repr=False)
    environment: dict[str, str] = field(repr=False)
    scenario_tree: dict[str, Any] = field(repr=False)
    steps: tuple[StepMetrics, ...] = field(repr=False)
    images_per_second: dict[int, float] = field(repr=False)
    training: tuple[TrainRecord, ...] = field(repr=False)

    @cached_property
    def config(self) -> RunConfig:
        """Every setting of the run; a UserError where this version of faircl does not know one."""
        return RunFolder(self.folder).config()

    @cached_property
    def scenario(self) -> Scenario:
        """Classes and images of every step."""
        return RunFolder(self.folder).load_scenario()

    @property
    def final(self) -> StepMetrics:
        """Metrics after the last step evaluated so far."""
        return self.steps[-1]

    @property
    def average(self) -> float:
        """Average over steps; NaN where the steps before the last were not evaluated, as in joint training."""
        whole = [s.step for s in self.steps] == list(range(self.final.step + 1))
        return average_over_steps(self.steps) if whole else math.nan

    @property
    def class_names(self) -> dict[int, str]:
        """Raw id to name, of classes seen so far and of those still to come."""
        names = {int(c["id"]): str(c["name"]) for c in self.scenario_tree.get("classes", [])}
        return names | {c.id: c.name for c in self.final.classes}

    @property
    def train_pixels(self) -> dict[int, int]:
        """Raw id to the number of training pixels, where the scenario tells."""
        return {int(c["id"]): c["pixels"] for c in self.scenario_tree.get("classes", []) if c.get("pixels") is not None}

    @property
    def method(self) -> str:
        """The method, with what was put around and beside it."""
        return method_words(self.config_tree)

    @property
    def model(self) -> str:
        """Name of the network."""
        return self._named("model") or "unnamed model"

    @property
    def task(self) -> str:
        """Data, task and setting in words, as far as they are known: "voc 15-1 (overlapped)"."""
        scenario = {**_mapping(self.config_tree.get("scenario")), **self.scenario_tree}
        setting = f"({scenario['setting']})" if scenario.get("setting") else ""
        if (scenario.get("protocol") or "classes") != "classes":
            setting = f"(by domain, {scenario['protocol']})"
        words = (self._named("data"), short_task(str(scenario.get("task") or "")), setting)
        return " ".join(word for word in words if word) or self.folder.name

    @property
    def leaked(self) -> float:
        """Share of the test images of the last evaluated step that have been trained on."""
        shares = self.scenario_tree.get("shares", [])[: len(self.steps)]
        return float(shares[-1]["leaked"]) if shares else 0.0

    def predictions(self, example: int) -> dict[int, Path]:
        """Step to the file of its prediction for an example, where there is one."""
        folders = [p for p in sorted((self.folder / "steps").glob("*")) if p.name.isdecimal()]
        files = {int(p.name): p / "examples" / f"{example}.png" for p in folders}
        return {step: file for step, file in files.items() if file.is_file()}

    def examples(self) -> list[int]:
        """Numbers of the example images."""
        files = (self.folder / "examples").glob("*.image.png")
        return sorted(int(name) for p in files if (name := p.name.split(".")[0]).isdecimal())

    def _named(self, part: str) -> str:
        value = self.config_tree.get(part)
        name = value.get("name") if isinstance(value, dict) else value
        return name if isinstance(name, str) else ""


def load_run(folder: Path) -> Run:
    """Read a run folder. Only metrics.jsonl, with at least one evaluation, is required.

    Where a resumed run wrote a step or an iteration twice, the later line counts.
    """
    folder = Path(folder)
    evaluations: dict[int, dict[str, Any]] = {}
    training: dict[tuple[int, int], TrainRecord] = {}
    for line in _metric_lines(folder / "metrics.jsonl"):
        if line.get("kind") == "eval":
            evaluations[line["step"]] = line
        elif line.get("kind") == "train":
            terms, measures = _numbers(line.get("terms")), _numbers(line.get("measures"))
            loss = math.nan if line["loss"] is None else float(line["loss"])
            record = TrainRecord(line["step"], line["iteration"], line["iterations"], loss, terms, measures)
            training[record.step, record.iteration] = record
    if not evaluations:
        raise UserError(f"Run {folder} has no evaluation in metrics.jsonl yet; let it finish its first step.")
    config_text = _text(folder / "config.yaml")
    ordered = [evaluations[step] for step in sorted(evaluations)]
    return Run(
        folder=folder,
        config_tree=_mapping(yaml.safe_load(config_text)),
        config_text=config_text,
        environment={k: str(v) for k, v in _mapping(json.loads(_text(folder / "environment.json") or "{}")).items()},
        scenario_tree=_mapping(json.loads(_text(folder / "scenario.json") or "{}")),
        steps=tuple(StepMetrics.from_json(line) for line in ordered),
        images_per_second={e["step"]: float(e["images_per_second"]) for e in ordered if e.get("images_per_second")},
        training=tuple(training[key] for key in sorted(training)),
    )


def _metric_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise UserError(f"{path.parent} is not a run folder: it has no metrics.jsonl. Give the folder of a run.")
    lines = path.read_text(encoding="utf-8").splitlines()
    out: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            out.append(json.loads(line))
        except json.JSONDecodeError as error:
            # A run that was killed, or is writing just now, may leave its last line unfinished.
            if number < len(lines):
                raise UserError(f"{path} is damaged: line {number} is not JSON ({error}). Remove the line.") from error
    return out


def _numbers(values: Any) -> dict[str, float]:
    return {name: math.nan if v is None else float(v) for name, v in _mapping(values).items()}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
