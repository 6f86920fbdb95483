"""The run folder and how it is written.

    config.yaml environment.json scenario.json data.json metrics.jsonl metrics.csv report.html train.log
    examples/0.image.png 0.truth.png …
    steps/00/model.safetensors model.json method.safetensors method.json evaluation.npz examples/0.png … SHA256SUMS
    gallery/…                    once all steps are finished (`faircl.runs.gallery`)
    checkpoints/01-00000420/…    while step 1 trains (`faircl.runs.in_step`)

Files and steps appear only when they are complete and on the disk (`faircl.files`); train.log and, while a step trains,
metrics.jsonl grow line by line. A step counts as finished once its evaluation is in metrics.jsonl.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from faircl.config.identity import differing_settings
from faircl.config.run import RunConfig, parse_config
from faircl.data.digests import DataDigests
from faircl.effects import Effect
from faircl.errors import UserError
from faircl.files import flush, write_folder, write_text
from faircl.runs.begun import check_begun, is_begun, is_unused
from faircl.runs.lock import RunLock
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
        lock: RunLock,
        config: RunConfig,
        scenario: Scenario,
        env: dict[str, str],
        resume: bool,
        digests: DataDigests,
    ) -> RunFolder:
        """Make a new run folder, or take up an unfinished one of the same configuration and scenario; lock it."""
        folder, path = cls(lock.folder), lock.folder
        try:
            path.mkdir(parents=True, exist_ok=True)
            flush(path.parent)
        except OSError as error:
            raise UserError(
                f"Cannot make the output folder {path}: {error.strerror}; choose another with --out."
            ) from None
        lock.acquire()
        folder.check_free(config, resume)  # again: another process may have been faster
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

    def begun(self) -> bool:
        """Whether the folder holds a run."""
        return is_begun(self.path)

    def check_free(self, config: RunConfig, resume: bool) -> None:
        """Refuse a folder that holds something else, and with ``resume`` one in which no run was begun."""
        if resume:
            check_begun(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"Output {self.path} is a file; choose a folder with --out.")
        try:
            if not self.path.exists() or is_unused(self.path):
                return
        except OSError as error:
            raise UserError(
                f"Cannot look into the output folder {self.path}: {error.strerror}; choose another with --out."
            ) from None
        if not self.begun():
            raise UserError(f"Output folder {self.path} holds other files; choose an empty or new folder with --out.")
        # After the first step its starting weights are not read again, so the file may have moved.
        begun = self.finished_steps() > 0
        ignored = {Effect.NONE, *([Effect.FIRST_STEP] if begun else [])}
        saved, given = (one.model_dump(mode="json") for one in (self.config(), config))
        other = differing_settings(saved, given, ignored)
        if other and resume:
            pairs = ((key, *(_setting(tree, key) for tree in (saved, given))) for key in other[:3])
            listed = ", ".join(f"{key} {before}, not {now}" for key, before, now in pairs)
            more = " and more" if len(other) > 3 else ""
            raise UserError(
                f"The run in {self.path} was begun with {listed}{more}; leave that out to continue it, or begin "
                "another run in another folder."
            )
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

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints within a step."""
        return self.path / "checkpoints"

    def finished_steps(self) -> int:
        """Return the number of steps that are complete, counted from the first.

        A step's evaluation is recorded after its folder is written; without it the step is not complete. An exported
        run has the folder of its last step alone; the steps before it count as complete.
        """
        recorded = len(self.records("eval"))
        done = next((step for step in range(recorded) if self.step_path(step).is_dir()), 0)
        if self.step_path(recorded + 1).is_dir():
            raise UserError(
                f"{self.path / METRICS} lacks evaluations of steps that are saved; the run folder is damaged."
            )
        while done < recorded and self.step_path(done).is_dir():
            done += 1
        return done

    def check_recorded(self) -> None:
        """Raise a UserError if a step that was evaluated after the last complete one has lost its folder."""
        # The records first: a run that is being trained writes a step's folder before its record, so that a step which
        # finishes in between is counted by its folder alone. The other way round it would look as if it had none.
        recorded = {record["step"] for record in self.records("eval")}
        done = self.finished_steps()
        if done < len(recorded):
            raise UserError(
                f"{self.step_path(done)} is missing, though {METRICS} has its evaluation: the run folder is damaged. "
                f"Restore it from a copy, or train the step again: faircl train --resume {self.path}."
            )

    def usable_steps(self) -> int:
        """Return the number of complete steps; a UserError if the run is damaged or has none yet."""
        self.check_recorded()
        done = self.finished_steps()
        if done == 0:
            raise UserError(
                f"The run {self.path} has no finished step yet; continue it: faircl train --resume {self.path}."
            )
        return done

    def unfinished_note(self, step: int) -> str:
        """Return a note for the user if ``step`` is the last complete one and more were to come; otherwise ""."""
        steps = len(self.scenario().get("steps", []))
        if step + 1 != self.finished_steps() or step + 1 >= steps:
            return ""
        return (
            f"note: the run {self.path} has finished {step + 1} of {steps} steps; the network of step {step} is used. "
            f"If it is not being trained at the moment, faircl train --resume {self.path} continues it."
        )

    def records(self, kind: str | None = None, before_step: int | None = None) -> list[Record]:
        """Return the records of metrics.jsonl: all, or those of one kind or before a step."""
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
        write_folder(self.step_path(step), write)

    def append_record(self, record: Record) -> None:
        """Append a line to metrics.jsonl, if that is possible."""
        with suppress(OSError), (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def remove_steps_after(self, step: int) -> None:
        """Remove the folders of all later steps, the last one first."""
        later = list(takewhile(Path.is_dir, map(self.step_path, count(step + 1))))
        for path in reversed(later):
            shutil.rmtree(path, ignore_errors=True)

    def remove_checkpoints(self) -> None:
        """Remove all checkpoints within a step."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)

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


def _setting(tree: Any, key: str) -> Any:
    """Return the value of a dotted key; None where there is none."""
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree
