"""Renaming, merging and dropping classes of a model in use: a new version, without training and without images."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

import faircl
from faircl.checksums import sha256
from faircl.deploy.adding.added_step import Base
from faircl.deploy.editing.class_edits import ClassEdit
from faircl.deploy.matching import Known
from faircl.engine.make_method import make_method
from faircl.engine.network import build_model
from faircl.errors import UserError
from faircl.files import move_into_place, write_text, writing
from faircl.methods.base import Method
from faircl.methods.faircl import FairCL
from faircl.methods.faircl.regroup import regroup
from faircl.metrics import average_over_steps, forgetting
from faircl.metrics.summary import nan_to_none, summarise
from faircl.models.segmenter import Segmenter
from faircl.parallel import launched_world_size
from faircl.progress import Reporter
from faircl.registry import METHODS
from faircl.runs.checkpoint import load_step, save_step
from faircl.runs.environment import environment
from faircl.runs.folder import RunFolder
from faircl.runs.reading import CONFIG, ENVIRONMENT, SCENARIO, Record
from faircl.runs.versions import VERSION, Version, VersionChain, copy_run
from faircl.scenario import Scenario, Step


def edit_classes(run: Path, plan: Callable[[Known], ClassEdit], reporter: Reporter, out: Path | None = None) -> Version:
    """Change the classes of a model as ``plan`` says; return the version that this makes.

    With ``out`` the run is copied there first and stays as it is.
    """
    if launched_world_size() > 1:
        raise UserError("Classes are changed by one process; start 'faircl classes' without torchrun.")
    chain = VersionChain.open(run)
    if out is None:
        with chain.locked():
            chain.check_finished()
            return _edit(chain, plan, reporter)
    copy_run(chain.run, out)
    try:
        with (copy := VersionChain(out)).locked():
            return _edit(copy, plan, reporter)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _edit(chain: VersionChain, plan: Callable[[Known], ClassEdit], reporter: Reporter) -> Version:
    base = Base.open(RunFolder(chain.find(None)))
    edit = plan(base.known)
    network, method = _edited(base, edit, reporter)
    return _write(chain, base, edit, network, method)


def _edited(base: Base, edit: ClassEdit, reporter: Reporter) -> tuple[Segmenter, Method]:
    """Return network and method with the new classes."""
    name = base.config.method.name
    if edit.kind == "merge-classes" and METHODS.get(name).needs.sigmoid:
        raise UserError(
            f"The model was trained by {name}, with one sigmoid per class, whose probabilities do not add up; classes "
            "can be merged where they share a softmax."
        )
    network = build_model(base.config, pretrained=False)
    method = make_method(base.config, network)
    keeps_state = base.keeps_features or not edit.regroups
    load_step(base.folder.step_path(base.step), network, method if keeps_state else None)
    if edit.regroups:
        network.classifier.regroup(edit.groups)
    if not keeps_state:
        reporter.say(
            f"note: the model was trained by {name}, whose state cannot follow the change: the new version has the "
            "network alone; 'faircl add-classes' goes on with FairCL and does not need that state"
        )
    elif edit.regroups:
        assert isinstance(method, FairCL), "keeps_features"
        regroup(method, edit.groups)
    return network, method


def edited_scenario(base: Base, edit: ClassEdit) -> Scenario:
    """Return a scenario of one step, without images, that has learned all classes of an edited model."""
    scenario, known = base.scenario, base.known
    pixels = [dict(zip(scenario.channel_ids, scenario.pixels, strict=True))[id] for id in known.learned]
    foreground = tuple(id for id in edit.learned if not known.is_background(id))
    return Scenario(
        classes=edit.classes,
        task="offline",
        setting="sequential",
        steps=(Step(foreground, ()),),
        learned_at=(0,) * len(edit.learned),
        pixels=tuple(sum(pixels[channel] for channel in group) for group in edit.groups),
        labels_sha256=scenario.labels_sha256,
        background_absent=scenario.background_absent,
        colours=scenario.colours,
        earlier_steps=scenario.seed_step(base.step),
    )


def _write(chain: VersionChain, base: Base, edit: ClassEdit, network: Segmenter, method: Method) -> Version:
    """Write a version's folder under a hidden name, then move it to its place."""
    final = chain.folder(chain.next())
    part = RunFolder(final.with_name(f".{final.name}.part"))
    scenario = edited_scenario(base, edit)
    shutil.rmtree(part.path, ignore_errors=True)
    try:
        with writing(final):
            part.path.mkdir()
        part.write_text(CONFIG, (base.folder.path / CONFIG).read_text(encoding="utf-8"))
        part.write_text(SCENARIO, json.dumps(scenario.to_json(), indent=1))
        part.write_text(ENVIRONMENT, json.dumps(environment(), indent=1))
        part.write_step(0, lambda path: save_step(path, network, method, scenario, 0))
        part.write_records([_record(scenario, base.config.eval.convention)])
        version = Version(
            number=chain.next(),
            parent=chain.current(),
            status="accepted",
            kind=edit.kind,
            what=edit.what,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            code=faircl.__version__,
            model_sha256=sha256(part.step_path(0) / "model.safetensors"),
            parent_sha256=sha256(base.folder.step_path(base.step) / "model.safetensors"),
        )
        write_text(part.path / VERSION, json.dumps(version.to_json(), indent=1, ensure_ascii=False))
        with writing(final):
            move_into_place(part.path, final)
    except BaseException:
        shutil.rmtree(part.path, ignore_errors=True)
        raise
    return version


def _record(scenario: Scenario, convention: str) -> Record:
    """Return the evaluation of a step that was evaluated on no image: every score is missing."""
    size = len(scenario.channel_ids)
    metrics = summarise(
        torch.zeros((size, size), dtype=torch.int64),
        ids=scenario.channel_ids,
        names=scenario.names,
        learned_at=scenario.learned_at,
        step=0,
        background=scenario.background,
        convention=convention,
    )
    record = {"kind": "eval", **metrics.to_json(), **forgetting([metrics]).to_json(), "leaked": 0.0}
    plain: Record = nan_to_none(record | {"average_over_steps": average_over_steps([metrics])})
    return plain
