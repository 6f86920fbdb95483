"""The run folder: what is written where, whole or not at all.

    config.yaml environment.json scenario.json metrics.jsonl metrics.csv report.html
    examples/0.image.png 0.truth.png …
    steps/00/model.safetensors model.json method.safetensors method.json examples/0.png …

A file is written beside its place and moved there; a step's folder appears only when it is complete. A killed
process therefore leaves nothing that looks finished and is not.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from faircl.config import RunConfig, parse_config
from faircl.errors import UserError
from faircl.scenario import Scenario

CONFIG, SCENARIO, METRICS = "config.yaml", "scenario.json", "metrics.jsonl"
# Settings that change how fast a run goes, not what it computes: a run may be resumed under others.
_SPEED_ONLY = {"train": {"workers", "log_every", "tensorboard"}}


class RunFolder:
    """A run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run."""
        if not (path / CONFIG).is_file():
            raise UserError(
                f"{path} is not a run folder: it has no {CONFIG}; give the folder that 'faircl train' wrote."
            )
        return cls(path)

    @classmethod
    def claim(cls, path: Path, config: RunConfig, scenario: Scenario, env: dict[str, str], resume: bool) -> RunFolder:
        """Make a new run folder, or take up an unfinished one of the same configuration and scenario."""
        folder = cls(path)
        folder.check_free(config, resume)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"Cannot make the output folder {path}: {error.strerror}; choose another with --out."
            ) from None
        if (path / SCENARIO).is_file() and folder.scenario()["sha256"] != scenario.sha256:
            raise UserError(
                f"The data have changed since {path} was begun: its scenario is {folder.scenario()['sha256'][:12]}, "
                f"today's {scenario.sha256[:12]}; start a new run in another folder."
            )
        folder.write_text(SCENARIO, json.dumps(scenario.to_json(), indent=1))
        folder.write_text("environment.json", json.dumps(env, indent=1))
        folder.write_text(CONFIG, config.to_yaml())
        return folder

    def check_free(self, config: RunConfig, resume: bool) -> None:
        """Refuse a folder that holds something else."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"Output {self.path} is a file; choose a folder with --out.")
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        if not (self.path / CONFIG).is_file():
            raise UserError(f"Output folder {self.path} holds other files; choose an empty or new folder with --out.")
        if _comparable(self.config()) != _comparable(config):
            raise UserError(
                f"Output folder {self.path} already holds another run, with other settings; choose another with --out."
            )
        if not resume:
            raise UserError(
                f"Output folder {self.path} already holds this run; continue it with --resume or choose "
                "another with --out."
            )

    # Reading

    def config(self) -> RunConfig:
        """Return the run's resolved configuration."""
        try:
            return parse_config(yaml.safe_load((self.path / CONFIG).read_text(encoding="utf-8")))
        except (OSError, yaml.YAMLError, TypeError) as error:
            raise UserError(f"Cannot read {self.path / CONFIG}: {error}.") from None

    def scenario(self) -> dict[str, Any]:
        """Return the saved scenario."""
        return self._read_json(SCENARIO)

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"Cannot read {self.path / name}: {error}; the run folder is damaged.") from None
        if not isinstance(value, dict):
            raise UserError(f"{self.path / name} holds no JSON object; the run folder is damaged.")
        return value

    def step_path(self, step: int) -> Path:
        """Folder of a step."""
        return self.path / "steps" / f"{step:02d}"

    def finished_steps(self) -> int:
        """Return the number of steps that are complete, counted from the first."""
        done = 0
        while self.step_path(done).is_dir():
            done += 1
        return done

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl of one kind, ``train`` or ``eval``."""
        path = self.path / METRICS
        if not path.is_file():
            return []
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        except ValueError as error:
            raise UserError(f"Cannot read {path}: {error}; the run folder is damaged.") from None
        return [line for line in lines if line["kind"] == kind]

    # Writing

    def write_text(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        path = self.path / name
        beside = path.with_name(f".{path.name}.part")
        try:
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise UserError(
                f"Cannot write {path}: {error.strerror}; nothing was lost, free some space and --resume."
            ) from None

    def write_step(self, step: int, write: Callable[[Path], None]) -> None:
        """Let ``write`` fill a step's folder, then move it to its place in one stroke."""
        final = self.step_path(step)
        beside = final.with_name(f".{final.name}.part")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            beside.mkdir(parents=True)
            write(beside)
            os.replace(beside, final)
        except OSError as error:
            shutil.rmtree(beside, ignore_errors=True)
            raise UserError(
                f"Cannot write {final}: {error.strerror}; earlier steps are safe, free some space and --resume."
            ) from None

    def write_records(self, records: list[dict[str, Any]]) -> None:
        """Replace metrics.jsonl, and metrics.csv made from its evaluations: a row per step and class."""
        self.write_text(METRICS, "".join(json.dumps(record) + "\n" for record in records))
        table = io.StringIO()
        columns = ("step", "id", "name", "learned_at", "iou", "error_rate", "pixels")
        writer = csv.DictWriter(table, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for record in records:
            if record["kind"] == "eval":
                writer.writerows({"step": record["step"], **row} for row in record["classes"])
        self.write_text("metrics.csv", table.getvalue())

    def all_records(self, before_step: int) -> list[dict[str, Any]]:
        """Return every record of the steps before one, in order."""
        return [r for kind in ("train", "eval") for r in self.records(kind) if r["step"] < before_step]


def _comparable(config: RunConfig) -> dict[str, Any]:
    tree = config.model_dump(mode="json")
    for section, keys in _SPEED_ONLY.items():
        tree[section] = {k: v for k, v in tree[section].items() if k not in keys}
    return tree
