"""Adding classes to a model in use: one more step of continual learning, without the old data."""

from __future__ import annotations

import shlex
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import faircl
from faircl.checksums import sha256
from faircl.config.run import RunConfig
from faircl.data.label_index import index_labels
from faircl.deploy.adding.added_step import Base, added_config, added_scenario, check_settings
from faircl.deploy.adding.agreement import AgreementData, chosen_images, write_labels
from faircl.deploy.adding.base_model import load_base
from faircl.deploy.adding.new_images import NewImages, open_holdout, open_new_images, verify_sources
from faircl.deploy.adding.request import Request
from faircl.deploy.adding.verdict import compare_predictions, judge
from faircl.deploy.matched_data import TEST, TRAIN, MatchedData, Source
from faircl.deploy.scored_images import ScoredImages
from faircl.engine.plan import Plan
from faircl.engine.runtime import make_fabric, process_settings
from faircl.engine.step_results import evaluate_step
from faircl.engine.trainer import train
from faircl.errors import UserError, listed
from faircl.fairness.record_file import RECORD, save_record
from faircl.files import writing
from faircl.metrics.summary import nan_to_none
from faircl.models.segmenter import Segmenter
from faircl.parallel import launched_world_size
from faircl.progress import Reporter
from faircl.runs.checkpoint import check_whole, save_step
from faircl.runs.folder import RunFolder
from faircl.runs.reading import DATA, STEP_FILES
from faircl.runs.versions import AGREEMENT, REQUEST, Version, VersionChain, copy_run
from faircl.scenario import Splits
from faircl.scenario.class_steps import file_identities
from faircl.timed_lines import duration

KIND = "add-classes"


@dataclass(frozen=True)
class Addition:
    """An added step that has been checked: nothing has been written yet."""

    base: Base
    request: Request
    new: NewImages
    holdout: ScoredImages | None
    config: RunConfig
    parent: int

    @property
    def names(self) -> list[str]:
        """Names of the classes to add."""
        return self.new.matching.names(self.new.matching.new)


def add_classes(
    run: Path, request: Request | None, reporter: Reporter, out: Path | None = None, resume: bool = False
) -> list[Version]:
    """Add the classes of a request to a model and return the versions that were made, in order.

    Classes that different images label come one version after the other. With ``out`` the run is copied there first
    and stays as it is. Without a request an unfinished version is continued (``resume``), whose request is its own.
    """
    if launched_world_size() > 1:
        raise UserError("Classes are added by one process; start 'faircl add-classes' without torchrun.")
    chain = VersionChain.open(run)
    if out is None:
        with chain.locked():
            if resume:
                request = _unfinished_request(chain)
            else:
                chain.check_finished()
            assert request is not None, "a request, or a version to continue"
            return _add_all(chain, prepare(chain, request, reporter), reporter)
    assert request is not None, "an addition to a copy is new"
    addition = prepare(chain, request, reporter)
    copy_run(chain.run, out)
    try:
        with (copy := VersionChain(out)).locked():
            if copy.current() != addition.parent:
                raise UserError(f"{run} has got another version meanwhile; start 'faircl add-classes' again.")
            return _add_all(copy, addition, reporter)
    except UserError:
        if len(VersionChain(out).finished()) == len(chain.finished()) and VersionChain(out).unfinished() is None:
            shutil.rmtree(out, ignore_errors=True)  # the copy has nothing that the run has not
        raise


def _unfinished_request(chain: VersionChain) -> Request:
    unfinished = chain.unfinished()
    if unfinished is None:
        raise UserError(f"There is nothing to continue in {chain.run}: every version is finished; leave --resume out.")
    return Request.load(chain.folder(unfinished))


def _add_all(chain: VersionChain, addition: Addition, reporter: Reporter) -> list[Version]:
    """Add the classes of a request, a version after the other; a rejected one is the last."""
    made: list[Version] = []
    while True:
        made.append(_add(chain, addition, chain.unfinished() or chain.next(), reporter))
        if not made[-1].accepted or not addition.new.then:
            return made
        request = replace(addition.request, classes=addition.new.then[0], then=addition.new.then[1:])
        addition = prepare(chain, request, reporter)


def prepare(chain: VersionChain, request: Request, reporter: Reporter) -> Addition:
    """Open and check all that an added step needs; a UserError where something is missing."""
    parent = chain.current()
    base = Base.open(RunFolder(chain.find(parent)))
    check_whole(base.folder.step_path(base.step), STEP_FILES)
    check_settings(base, request.settings)
    new = open_new_images(base.known, request, reporter)
    holdout = None if request.holdout is None else open_holdout(base.known, new.matching, request, reporter)
    if holdout is not None:
        _check_separate(new, holdout)
    config = _config(base, request, new)
    verify_sources(new.source, *([] if holdout is None else [holdout.source]), reporter=reporter)
    return Addition(base, request, new, holdout, config, parent)


def _add(chain: VersionChain, addition: Addition, number: int, reporter: Reporter) -> Version:
    """Train and judge one version."""
    base, request, folder = addition.base, addition.request, RunFolder(chain.folder(number))
    begun = folder.begun()
    if not begun:
        shutil.rmtree(folder.path, ignore_errors=True)  # what a killed process left before anything counted
    reporter.say(_announce(chain, addition, number))
    try:
        with process_settings(addition.config.train):
            plan = _begun(folder, addition, reporter)
        command = f"faircl add-classes {shlex.quote(str(chain.run))} --resume"
        train(plan.config, folder.path, reporter, resume=True, plan=plan, resume_command=command)
    except (UserError, KeyboardInterrupt):
        if not begun and not folder.checkpoints.is_dir() and folder.finished_steps() < 2:  # nothing was learned
            with suppress(UserError):  # nothing is there yet, or cannot be moved: the first error is the one to read
                chain.remove(number)
        raise
    before, after = (folder.records("eval")[step] for step in (0, 1))
    guarded = request.holdout is not None
    background = plan.scenario.background
    if guarded:
        verdict = judge(before, after, request.max_drop, request.max_class_drop, background)
    else:
        verdict = compare_predictions(before, after, background)
    images = len(plan.scenario.steps[1].test_images)
    version = Version(
        number=number,
        parent=addition.parent,
        status="rejected" if verdict.reason else "accepted",
        kind=KIND,
        what=f"added {', '.join(addition.names)}",
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        code=faircl.__version__,
        model_sha256=sha256(folder.step_path(1) / "model.safetensors"),
        parent_sha256=sha256(base.folder.step_path(base.step) / "model.safetensors"),
        data={
            "reader": addition.new.reader.name,
            "root": str(getattr(addition.new.reader, "root", None) or ""),
            "images": len(addition.new.images),
            "sha256": sha256(folder.path / DATA),
        },
        measured=f"{images} holdout images" if guarded else f"agreement with the model before on {images} new images",
        drop=verdict.drop,
        agreement=verdict.agreement,
        reason=verdict.reason,
        changes=verdict.changes,
    )
    chain.write(version)
    shutil.rmtree(folder.path / AGREEMENT, ignore_errors=True)
    (folder.path / REQUEST).unlink(missing_ok=True)
    return version


def _check_separate(new: NewImages, holdout: ScoredImages) -> None:
    """Raise a UserError if an image is both learned from and checked on: the check would prove nothing."""
    learned, checked = file_identities(new.index), file_identities(holdout.index)
    trained = {learned[id] for id in new.images}
    if shared := [id for id in holdout.index.ids if checked[id] in trained]:
        raise UserError(
            f"{len(shared)} of the {len(checked)} holdout images are among the new images, {shared[0]} for one; check "
            "on images that are not learned from."
        )


def _config(base: Base, request: Request, new: NewImages) -> RunConfig:
    """Return the configuration of the step; its test images play no part in it."""
    index = new.label_index()
    scenario = added_scenario(base, new.matching, new.images, index, index, request.complete)
    return added_config(base, new.reader.model_dump(mode="json"), scenario, request.settings)


def _announce(chain: VersionChain, addition: Addition, number: int) -> str:
    """Say what is about to be done and how long it may take."""
    base, new = addition.base, addition.new
    known = len(base.known.names)
    labelled = new.matching.names(new.matching.known)
    also = f"; they label {listed(labelled)} too" if labelled else ""
    lines = [
        f"adding {listed(addition.names)} to the {known} classes of version {chain.current()} of {chain.run}, as "
        f"version {number}",
        f"{len(new.images)} new images of {new.reader.name} {getattr(new.reader, 'root', '') or ''}{also}",
    ]
    if not base.keeps_features:
        lines.append(
            f"note: the model was trained by {base.config.method.name}; FairCL goes on, with class statistics by the "
            "model's own predictions on the new images"
        )
    speed = base.folder.records("eval")[-1].get("images_per_second")
    train_config = addition.config.train
    epochs = train_config.later_epochs or train_config.epochs
    if speed:
        lines.append(f"about {duration(epochs * len(new.images) / speed)}, at the speed the model was trained with")
    return "\n".join(lines)


def _begun(folder: RunFolder, addition: Addition, reporter: Reporter) -> Plan:
    """Write the first step of a version, the model before, with its evaluation; return the plan of the next one."""
    base, new, request, config = addition.base, addition.new, addition.request, addition.config
    device = make_fabric(config.train).device
    network, method = load_base(base, config, new.source, device, reporter)
    data = MatchedData(new.matching.classes, {TRAIN: new.source})
    test = _agreement(folder, network, data, base, reporter) if addition.holdout is None else addition.holdout
    data.sources[TEST] = test.source
    train_index = new.label_index()
    scenario = added_scenario(base, new.matching, new.images, train_index, test.index, request.complete)
    plan = Plan(config, data, scenario, Splits(TRAIN, TEST), train_index, test.index)
    if folder.begun() and folder.finished_steps() > 0:
        return plan
    with writing(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
    request.save(folder.path)
    folder.write_text("config.yaml", config.to_yaml())
    record, counted = evaluate_step(plan, network, 0, [], reporter)

    def save(path: Path) -> None:
        save_step(path, network, method, scenario, 0)
        save_record(counted, path / RECORD)

    folder.write_step(0, save)
    folder.write_records([nan_to_none(record)])
    return plan


def _agreement(
    folder: RunFolder, network: Segmenter, data: MatchedData, base: Base, reporter: Reporter
) -> ScoredImages:
    """Return new images with the old model's predictions for truth; their masks are files of the version."""
    place, images = folder.path / AGREEMENT, chosen_images(data.ids(TRAIN))
    if not folder.begun():
        write_labels(place, network, data, images, base.scenario, reporter)
    agreed = AgreementData(data, place)
    index = index_labels(agreed, TEST, ids=images)
    return ScoredImages(Source(agreed, TEST, tuple(images), np.arange(65536, dtype=np.uint16)), index)
