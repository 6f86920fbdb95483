"""Evaluation of the saved steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from faircl.config.run import RunConfig
from faircl.data.label_index import LabelIndex, index_labels
from faircl.data.sample import SegmentationData
from faircl.distributed import init_process_group, on_rank_zero
from faircl.engine.data_record import note_changed_images
from faircl.engine.evaluate import evaluate
from faircl.engine.network import build_model, move_to_device
from faircl.engine.runtime import make_fabric, process_settings, rank_zero_reporter
from faircl.errors import UserError, listed
from faircl.metrics import StepMetrics
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.readers.base import FileConfig, ReaderConfig
from faircl.registry import is_joint
from faircl.runs.checkpoint import load_step
from faircl.runs.folder import RunFolder
from faircl.scenario import CONVENTIONS, Convention, Scenario
from faircl.scenario.class_steps import with_test_images
from faircl.scenario.conventions import ConventionName, EvaluatedImages
from faircl.scenario.division import find_splits
from faircl.scenario.from_config import make_scenario, warn_of_leaks


def evaluate_again(
    folder: RunFolder,
    reporter: Reporter,
    step: int | None = None,
    root: Path | None = None,
    convention: ConventionName | None = None,
    images: EvaluatedImages | None = None,
) -> list[StepMetrics]:
    """Load and evaluate all saved steps, or one of them.

    ``root`` is the data folder if it has moved; ``convention`` and ``images`` replace the run's own. Under torchrun
    every process makes the same call and returns the same metrics.
    """
    init_process_group()
    reporter = rank_zero_reporter(reporter)
    config = moved_config(folder, root)
    steps = saved_steps(folder, step)
    data = config.data.open()
    chosen = CONVENTIONS[convention or config.eval.convention]
    kind = images or config.eval.images
    _check_classes(folder, data)
    if kind == "validation":
        scenario, split = _validation(folder, data, config, chosen, reporter)
    else:
        scenario = _scenario(folder, data, config.data, chosen, reporter)
        split = find_splits(config.data, scenario.protocol).test
        warn_of_leaks(scenario, reporter)
    found = []
    with process_settings(config.train):
        # The device need not be that of training; the precision is that of the saved weights.
        fabric = make_fabric(config.train.model_copy(update={"accelerator": "auto", "precision": "fp32"}))
        for one in steps:
            metrics, _ = evaluate(
                move_to_device(load_network(folder, config, one), fabric.device),
                data,
                split,
                scenario,
                one,
                convention=chosen,
                size=config.eval.size,
                batch=config.eval.batch,
                workers=config.train.workers,
                reporter=reporter,
                kind=kind,
            )
            found.append(metrics)
    return found


def moved_config(folder: RunFolder, root: Path | None) -> RunConfig:
    """Return the configuration of a run, with ``root`` as the data folder if that has moved."""
    config = folder.config()
    if root is None:
        return config
    if not isinstance(config.data, FileConfig):
        raise UserError(f"--root is for folder data; the run {folder.path} used '{config.data.name}'.")
    return config.model_copy(update={"data": config.data.model_copy(update={"root": root})})


def saved_steps(folder: RunFolder, step: int | None) -> Sequence[int]:
    """Return the numbers under which a run's finished steps are saved: all of them, or those of one step.

    Negative steps count from the last finished one, -1. Joint training saves its only step as 0, but reports it as the
    last step of the task.
    """
    done = folder.usable_steps()
    present = [one for one in range(done) if folder.step_path(one).is_dir()]
    if step is None:
        return present
    if step < 0:
        if -step > len(present):
            raise UserError(
                f"The run {folder.path} has no step {step}; counted from its last, steps go back to {-len(present)}."
            )
        return [present[step]]
    saved = folder.scenario()
    reported = max((entry["step"] for entry in saved.get("classes", [])), default=0)
    if len(saved.get("steps", [])) == 1 and step == reported:
        return [0]
    if step >= done:
        raise UserError(f"The run {folder.path} has no step {step}; finished steps run from 0 to {done - 1}.")
    if step not in present:
        steps = listed([str(one) for one in present])
        raise UserError(f"The run {folder.path} was exported without the network of step {step}; it has {steps}.")
    return [step]


def load_network(folder: RunFolder, config: RunConfig, step: int) -> Segmenter:
    """Return the network of a saved step, on the CPU."""
    model = build_model(config, pretrained=False)
    load_step(folder.step_path(step), model, None)
    return model


def _check_classes(folder: RunFolder, data: SegmentationData) -> None:
    expected = folder.load_scenario().classes
    if data.classes.names != expected.names or data.classes.background != expected.background:
        raise UserError(
            f"The data's classes are not those that {folder.path} was trained on: found "
            f"{listed(data.classes.names)}; expected {listed(expected.names)}."
        )


def _validation(
    folder: RunFolder, data: SegmentationData, config: RunConfig, convention: Convention, reporter: Reporter
) -> tuple[Scenario, str]:
    """Return the run's scenario with validation images in place of test images, and their split."""
    if config.data.validation is None:
        raise UserError(f"The run {folder.path} has no validation images; leave --images validation out.")
    make = partial(
        make_scenario,
        data,
        config.data,
        config.scenario,
        reporter,
        convention=convention.name,
        joint=is_joint(config.method.name),
    )
    made = on_rank_zero(make).validation
    if made is None or made.scenario.validation != folder.load_scenario().validation:
        raise UserError(
            f"The validation images of {folder.path} are not those that the data has now, some of which it may have "
            "been trained on; give the folder that holds the same images with --root."
        )
    on_rank_zero(partial(note_changed_images, folder.path, data, made.split, made.index, reporter, "validation"))
    return made.scenario, made.split


def _scenario(
    folder: RunFolder, data: SegmentationData, reader: ReaderConfig, convention: Convention, reporter: Reporter
) -> Scenario:
    """Return the run's scenario with the test images that the data has now; training images are not read."""
    scenario = folder.load_scenario()
    split, ids = find_splits(reader, scenario.protocol).test, None
    if scenario.by_domain:
        _check_test_images(folder, scenario, data, split)
        ids = sorted({id for step in scenario.steps for id in step.test_images})
    index = on_rank_zero(partial(_index, folder, data, split, ids, reporter))
    if scenario.by_domain:
        return scenario
    current = with_test_images(scenario, index, convention)
    same_convention = CONVENTIONS[folder.config().eval.convention] == convention
    if same_convention and [s.test_images for s in current.steps] != [s.test_images for s in scenario.steps]:
        before, now = (len(made.steps[-1].test_images) for made in (scenario, current))
        reporter.say(f"note: evaluating on {now} test images; {folder.path} was evaluated on {before} different ones")
    return current


def _index(
    folder: RunFolder, data: SegmentationData, split: str, ids: Sequence[str] | None, reporter: Reporter
) -> LabelIndex:
    index = index_labels(data, split, reporter, ids=ids)
    note_changed_images(folder.path, data, split, index, reporter)
    return index


def _check_test_images(folder: RunFolder, scenario: Scenario, data: SegmentationData, split: str) -> None:
    """Raise a UserError if a test image of a domain scenario is missing; these are chosen once, from all images."""
    available = set(data.ids(split))
    missing = [id for step in scenario.steps for id in step.test_images if id not in available]
    if missing:
        raise UserError(
            f"{len(set(missing))} test images of {folder.path} are no longer in the data, {missing[0]} among them; "
            "give the folder that holds them with --root."
        )
