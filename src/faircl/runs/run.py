"""A run on disk, for reading: its configuration, scenario, evaluations, losses and example pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from faircl.config.describe import method_words
from faircl.config.run import RunConfig
from faircl.data.masks import Palette, palette_of
from faircl.errors import UserError
from faircl.fairness.record import EvaluationRecord
from faircl.fairness.record_file import RECORD, load_record
from faircl.metrics import StepMetrics, average_over_steps
from faircl.runs.folder import RunFolder
from faircl.runs.gallery import GalleryImage, read_gallery
from faircl.runs.reading import (
    ADOPTED,
    CONFIG,
    ENVIRONMENT,
    METRICS,
    SCENARIO,
    Record,
    TrainRecord,
    evaluations,
    read_config,
    read_json,
    read_records,
    step_metrics,
    train_records,
)
from faircl.scenario import Scenario, short_task


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
    leaked: float = field(default=0.0, repr=False)
    """Share of the images that the last step was evaluated on that have been trained on."""

    @cached_property
    def config(self) -> RunConfig:
        """Every setting of the run; a UserError where this version of faircl does not know one."""
        return RunFolder(self.folder).config()

    @cached_property
    def scenario(self) -> Scenario:
        """Classes and images of every step."""
        return RunFolder(self.folder).load_scenario()

    @cached_property
    def adopted(self) -> str:
        """What the network was when it was taken up from elsewhere; empty if it was trained from the first step."""
        return str(_optional_json(self.folder / ADOPTED).get("found", ""))

    @cached_property
    def records(self) -> dict[int, EvaluationRecord]:
        """The evaluation of every step image by image, by the step's number; runs of earlier versions have none."""
        return {record.step: record for record in map(load_record, self.record_files)}

    @property
    def record_files(self) -> list[Path]:
        """The files of ``records``, by step."""
        return sorted((self.folder / "steps").glob(f"*/{RECORD}"))

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
    def palette(self) -> Palette | None:
        """Colours of the classes by raw id, where the data has its own."""
        return palette_of(self.scenario_tree.get("colours", []))

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

    def predictions(self, example: int) -> dict[int, Path]:
        """Step to the file of its prediction for an example, where there is one."""
        folders = [p for p in sorted((self.folder / "steps").glob("*")) if p.name.isdecimal()]
        files = {int(p.name): p / "examples" / f"{example}.png" for p in folders}
        return {step: file for step, file in files.items() if file.is_file()}

    def examples(self) -> list[int]:
        """Numbers of the example images."""
        files = (self.folder / "examples").glob("*.image.png")
        return sorted(int(name) for p in files if (name := p.name.split(".")[0]).isdecimal())

    def gallery(self) -> tuple[GalleryImage, ...]:
        """Return the images of the gallery, in the order in which they were chosen."""
        return read_gallery(self.folder)

    def _named(self, part: str) -> str:
        value = self.config_tree.get(part)
        name = value.get("name") if isinstance(value, dict) else value
        return name if isinstance(name, str) else ""


def load_run(folder: Path) -> Run:
    """Read a run folder. Only metrics.jsonl, with at least one evaluation, is required."""
    folder = Path(folder)
    if not (folder / METRICS).is_file():
        raise UserError(f"{folder} is not a run folder: it has no {METRICS}. Give the folder of a run.")
    records = read_records(folder)
    evaluated = evaluations(records)
    if not evaluated:
        raise UserError(f"Run {folder} has no evaluation in {METRICS} yet; let it finish its first step.")
    speeds = {step: record.get("images_per_second") for step, record in evaluated.items()}
    has_config = (folder / CONFIG).is_file()
    return Run(
        folder=folder,
        config_tree=read_config(folder) if has_config else {},
        config_text=(folder / CONFIG).read_text(encoding="utf-8") if has_config else "",
        environment={key: str(value) for key, value in _optional_json(folder / ENVIRONMENT).items()},
        scenario_tree=_optional_json(folder / SCENARIO),
        steps=tuple(step_metrics(records)),
        images_per_second={step: float(speed) for step, speed in speeds.items() if speed},
        training=tuple(train_records(records)),
        leaked=_leaked(list(evaluated.values()), _optional_json(folder / SCENARIO)),
    )


def _leaked(evaluated: list[Record], scenario: dict[str, Any]) -> float:
    """Return the leaked share of the last evaluation; records of earlier versions leave it to the scenario."""
    shares = scenario.get("shares", [])[: len(evaluated)]
    return float(evaluated[-1].get("leaked", shares[-1]["leaked"] if shares else 0.0))


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
