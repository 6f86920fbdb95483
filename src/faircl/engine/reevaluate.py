"""Evaluating a finished run's saved models again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from faircl.config.run import RunConfig
from faircl.data.label_index import LabelIndex, index_labels
from faircl.data.sample import SegmentationData
from faircl.distributed import init_process_group, on_rank_zero
from faircl.engine.evaluate import evaluate
from faircl.engine.network import build_model, place
from faircl.engine.runtime import make_fabric, only_first, process_settings
from faircl.errors import UserError
from faircl.metrics import StepMetrics
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.readers.base import FileConfig, ReaderConfig
from faircl.runs.checkpoint import load_step
from faircl.runs.folder import RunFolder
from faircl.scenario import CONVENTIONS, Convention, Scenario
from faircl.scenario.class_steps import with_test_images
from faircl.scenario.conventions import ConventionName
from faircl.scenario.from_config import find_splits, warn_of_leaks


def evaluate_again(
    folder: RunFolder,
    reporter: Reporter,
    step: int | None = None,
    root: Path | None = None,
    convention: ConventionName | None = None,
) -> list[StepMetrics]:
    """Load each saved step (or one of them) and evaluate it.

    ``root`` says where the data folder is now; ``convention`` scores by another convention than the run did. Under
    torchrun all processes call it alike, and all return the result.
    """
    init_process_group()
    reporter = only_first(reporter)
    config = folder.config()
    if root is not None:
        if not isinstance(config.data, FileConfig):
            raise UserError(f"--root is for folder data; the run {folder.path} used '{config.data.name}'.")
        config = config.model_copy(update={"data": config.data.model_copy(update={"root": root})})
    steps = saved_steps(folder, step)
    data = config.data.open()
    chosen = CONVENTIONS[convention or config.eval.convention]
    scenario = _scenario(folder, data, config.data, chosen, reporter)
    split = find_splits(config.data, scenario.protocol).test
    warn_of_leaks(scenario, reporter)
    found = []
    with process_settings(config.train):
        # Any device will do, whatever the run was trained on. Precision is that of the weights.
        fabric = make_fabric(config.train.model_copy(update={"accelerator": "auto", "precision": "fp32"}))
        for one in steps:
            metrics = evaluate(
                place(load_network(folder, config, one), fabric.device),
                data,
                split,
                scenario,
                one,
                convention=chosen,
                size=config.eval.size,
                batch=config.eval.batch,
                workers=config.train.workers,
                reporter=reporter,
            )
            found.append(metrics)
    return found


def saved_steps(folder: RunFolder, step: int | None) -> Sequence[int]:
    """Return the finished steps of a run as they are saved: all of them, or one.

    Joint training saves one step and shows it under the task's last number.
    """
    done = folder.finished_steps()
    if done == 0:
        raise UserError(f"The run {folder.path} has no finished step yet; continue it with 'faircl train … --resume'.")
    if step is None:
        return range(done)
    saved = folder.scenario()
    shown = max((entry["step"] for entry in saved.get("classes", [])), default=0)
    if len(saved.get("steps", [])) == 1 and step == shown:
        return [0]
    if not 0 <= step < done:
        raise UserError(f"The run {folder.path} has no step {step}; finished steps run from 0 to {done - 1}.")
    return [step]


def load_network(folder: RunFolder, config: RunConfig, step: int) -> Segmenter:
    """Return the network of a saved step, on the CPU."""
    model = build_model(config, pretrained=False)
    load_step(folder.step_path(step), model, None)
    return model


def _scenario(
    folder: RunFolder, data: SegmentationData, reader: ReaderConfig, convention: Convention, reporter: Reporter
) -> Scenario:
    """Return the run's scenario, with today's test images; training images are not needed."""
    scenario = folder.load_scenario()
    if data.classes.names != scenario.classes.names or data.classes.background != scenario.classes.background:
        raise UserError(
            f"The data's classes are not those {folder.path} was trained on: found {', '.join(data.classes.names)}; "
            f"expected {', '.join(scenario.classes.names)}."
        )
    if scenario.by_domain:
        return _with_what_is_there(folder, scenario, data, find_splits(reader, scenario.protocol).test)
    index = LabelIndex(tuple(data.ids(reader.test)), np.zeros((0, 0), np.int64))
    if convention.seen_images_only:  # what they show matters then
        index = on_rank_zero(lambda: index_labels(data, reader.test, reporter))
    today = with_test_images(scenario, index, convention)
    ran = CONVENTIONS[folder.config().eval.convention]
    then, now = (len(made.steps[-1].test_images) for made in (scenario, today))
    if ran == convention and [s.test_images for s in today.steps] != [s.test_images for s in scenario.steps]:
        reporter.say(f"note: evaluating on {now} test images; {folder.path} was evaluated on other {then}")
    return today


def _with_what_is_there(folder: RunFolder, scenario: Scenario, data: SegmentationData, split: str) -> Scenario:
    """Return a domain scenario as it was; its test images are part of one pool and must all be there."""
    there = set(data.ids(split))
    missing = [id for step in scenario.steps for id in step.test_images if id not in there]
    if missing:
        raise UserError(
            f"{len(set(missing))} test images of {folder.path} are not in the data any more, {missing[0]} among them; "
            "say with --root where they are."
        )
    return scenario
