"""The run folder and how it is written.

    config.yaml environment.json scenario.json data.json metrics.jsonl metrics.csv report.html
    examples/0.image.png 0.truth.png …
    steps/00/model.safetensors model.json method.safetensors method.json examples/0.png …

A file is written beside its place and moved there; a step's folder appears only when it is complete. A killed process
therefore leaves no file or step that is incomplete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faircl.config.identity import differing_settings
from faircl.config.run import RunConfig, parse_config
from faircl.data.digests import DataDigests
from faircl.effects import Effect
from faircl.errors import UserError
from faircl.files import write_text, writing
from faircl.runs.reading import (
    CONFIG,
    DATA,
    ENVIRONMENT,
    METRICS,
    SCENARIO,
    Record,
    read_config,
    read_json,
    read_records,
)
from faircl.scenario import Scenario
from faircl.tables import Column, Table


class RunFolder:
    """A run on disk, for writing; ``faircl.runs.run.Run`` is for reading results."""

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
    def claim(
        cls,
        path: Path,
        config: RunConfig,
        scenario: Scenario,
        env: dict[str, str],
        resume: bool,
        digests: DataDigests,
    ) -> RunFolder:
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
            if "protocol" not in folder.scenario():
                raise UserError(
                    f"{path} was begun by an earlier version of faircl, whose scenarios had another form; finish it "
                    "with that version, or start a new run in another folder. Its finished steps can be evaluated."
                )
            raise UserError(
                f"The data have changed since {path} was begun: its scenario is {folder.scenario()['sha256'][:12]}, "
                f"today's {scenario.sha256[:12]}; start a new run in another folder."
            )
        # The configuration first: from then on the folder belongs to this run and can be resumed. Files that exist
        # are kept: they record how the run was begun, even if it is resumed with other settings.
        for name, text in (
            (CONFIG, config.to_yaml()),
            (SCENARIO, json.dumps(scenario.to_json(), indent=1)),
            (ENVIRONMENT, json.dumps(env, indent=1)),
            (DATA, json.dumps(digests.to_json(), indent=1)),
        ):
            if not (path / name).is_file():
                folder.write_text(name, text)
        return folder

    def check_free(self, config: RunConfig, resume: bool) -> None:
        """Refuse a folder that holds something else."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"Output {self.path} is a file; choose a folder with --out.")
        try:
            if not self.path.exists() or not any(self.path.iterdir()):
                return
        except OSError as error:
            raise UserError(
                f"Cannot look into the output folder {self.path}: {error.strerror}; choose another with --out."
            ) from None
        if not (self.path / CONFIG).is_file():
            raise UserError(f"Output folder {self.path} holds other files; choose an empty or new folder with --out.")
        # After the first step its starting weights are not read again, so the file may have moved.
        begun = self.finished_steps() > 0
        ignored = {Effect.NONE, *([Effect.FIRST_STEP] if begun else [])}
        other = differing_settings(self.config().model_dump(mode="json"), config.model_dump(mode="json"), ignored)
        if other:
            raise UserError(
                f"Output folder {self.path} already holds another run, with another {', '.join(other[:3])}"
                f"{' and more' if len(other) > 3 else ''}; choose another folder with --out."
            )
        if not resume:
            raise UserError(
                f"Output folder {self.path} already holds this run; continue it with --resume or choose "
                "another with --out."
            )

    # Reading

    def config(self) -> RunConfig:
        """Return the run's resolved configuration."""
        tree = read_config(self.path)
        try:
            return parse_config(tree)
        except UserError as error:
            raise UserError(f"{self.path / CONFIG}: {error}") from None

    def scenario(self) -> dict[str, Any]:
        """Return the saved scenario."""
        saved = read_json(self.path / SCENARIO)
        if not {"sha256", "task", "setting"} <= saved.keys():
            raise UserError(f"{self.path / SCENARIO} lacks its sha256, task or setting; the run folder is damaged.")
        return saved

    def load_scenario(self) -> Scenario:
        """Return the scenario that the run was trained on."""
        try:
            return Scenario.from_json(self.scenario())
        except (KeyError, TypeError, IndexError) as error:
            raise UserError(f"{self.path / SCENARIO} lacks {error}; the run folder is damaged.") from None

    def step_path(self, step: int) -> Path:
        """Folder of a step."""
        return self.path / "steps" / f"{step:02d}"

    def finished_steps(self) -> int:
        """Return the number of steps that are complete, counted from the first.

        A step's evaluation is recorded after its folder is written; without it the step is not complete.
        """
        done, recorded = 0, len(self.records("eval"))
        if self.step_path(recorded + 1).is_dir():
            raise UserError(
                f"{self.path / METRICS} lacks evaluations of steps that are saved; the run folder is damaged."
            )
        while done < recorded and self.step_path(done).is_dir():
            done += 1
        return done

    def records(self, kind: str | None = None, before_step: int | None = None) -> list[Record]:
        """Return the records of metrics.jsonl: all, or those of one kind (``train``, ``eval``) or before a step."""
        return [
            record
            for record in read_records(self.path)
            if kind in (None, record["kind"]) and (before_step is None or record["step"] < before_step)
        ]

    # Writing

    def write_text(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        write_text(self.path / name, text)

    def write_step(self, step: int, write: Callable[[Path], None]) -> None:
        """Let ``write`` fill a step's folder, then move it to its place."""
        final = self.step_path(step)
        beside = final.with_name(f".{final.name}.part")
        shutil.rmtree(beside, ignore_errors=True)
        with writing(final, lambda: shutil.rmtree(beside, ignore_errors=True)):
            beside.mkdir(parents=True)
            write(beside)
            shutil.rmtree(final, ignore_errors=True)  # left by a process that was killed before it recorded the step
            os.replace(beside, final)

    def write_records(self, records: list[Record]) -> None:
        """Replace metrics.jsonl, and metrics.csv made from its evaluations: a row per step and class."""
        self.write_text(METRICS, "".join(json.dumps(record) + "\n" for record in records))
        columns = ("id", "name", "learned_at", "iou", "error_rate", "pixels")
        rows = [
            [record["step"], *(row.get(column) for column in columns)]
            for record in records
            if record["kind"] == "eval"
            for row in record["classes"]
        ]
        self.write_text("metrics.csv", Table([Column(name) for name in ("step", *columns)], rows).csv())
