"""First steps that several runs have in common: trained by one of them, copied by the others.

Runs have the same first step if they differ in settings of later steps alone. The copy is a run folder as it stands
after its first step, with the settings of its own run; ``faircl train --resume`` continues it.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from faircl.config.run import RunConfig, parse_config
from faircl.engine.make_method import make_method
from faircl.engine.network import build_model
from faircl.files import write_text
from faircl.registry import is_joint
from faircl.runs.folder import RunFolder
from faircl.runs.reading import CONFIG, ENVIRONMENT, METRICS, read_json, read_records
from real_runs.plan import Job


def first_step_key(job: Job) -> str:
    """Return all that the first step of a run depends on, as text.

    These are its settings without those of later steps; of the method's, those that `Method.step0_key` names. Joint
    training has no second step and shares nothing but with itself.
    """
    tree = job.config.model_dump(mode="json")
    tree["optim"].pop("later_lr")
    tree["optim"].pop("later_parts")
    tree["train"].pop("later_epochs")
    tree["optim"]["parts"].pop("old_classifier")
    if tree["train"]["frozen_norm"] == "later":
        tree["train"]["frozen_norm"] = "never"
    name = tree["method"]["name"]
    tree["method"] = {"joint": job.name} if is_joint(name) else json.loads(_method_key(_method_settings(job.config)))
    return json.dumps(tree, sort_keys=True)


def has_first_step(folder: Path) -> bool:
    """Whether a run has finished its first step."""
    return RunFolder(folder).finished_steps() > 0


def source_commit(folder: Path) -> str | None:
    """Return the commit that a run was begun at; None where it has not begun."""
    path = folder / ENVIRONMENT
    return str(read_json(path).get("commit", "")) if path.is_file() else None


def begin(folder: Path, config: RunConfig, first: Path | None = None) -> None:
    """Make the folder of a run that ``--resume`` begins, or continues after the first step of another run."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    if first is not None:
        shutil.copytree(RunFolder(first).step_path(0), RunFolder(part).step_path(0))
        shutil.copytree(first / "examples", part / "examples")
        records = [record for record in read_records(first) if record["step"] == 0]
        write_text(part / METRICS, "".join(json.dumps(record) + "\n" for record in records))
    write_text(part / CONFIG, config.to_yaml())
    part.rename(folder)


def _method_settings(config: RunConfig) -> str:
    """Return what a method is made of, for any seed and data: it is made once for all runs that have the same."""
    tree = config.model_dump(mode="json")
    tree["seed"] = 0
    for key in ("data", "scenario", "optim", "train", "eval"):
        tree.pop(key)
    tree["model"].pop("weights", None)  # a file that need not be read for this
    return json.dumps(tree | {"data": "scenes"}, sort_keys=True)


@cache
def _method_key(settings: str) -> str:
    config = parse_config(json.loads(settings))
    key: dict[str, Any] = make_method(config, build_model(config, pretrained=False)).step0_key()
    return json.dumps(key, sort_keys=True)
