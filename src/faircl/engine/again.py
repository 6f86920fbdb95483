"""Evaluating a finished run's saved models again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from faircl.data.readers import FolderConfig
from faircl.data.sample import SegmentationData
from faircl.distributed import join
from faircl.engine.checkpoint import load_step
from faircl.engine.evaluate import evaluate
from faircl.engine.network import build_model
from faircl.engine.run_folder import RunFolder
from faircl.engine.runtime import make_fabric, only_first, process_settings
from faircl.errors import UserError
from faircl.metrics import StepMetrics
from faircl.progress import Reporter
from faircl.scenario import Scenario


def evaluate_again(
    folder: RunFolder, reporter: Reporter, step: int | None = None, root: Path | None = None
) -> list[StepMetrics]:
    """Load each saved step (or one of them) and evaluate it; ``root`` says where the data folder is now.

    Under torchrun all processes call it alike, and all return the result.
    """
    join()
    reporter = only_first(reporter)
    config = folder.config()
    if root is not None:
        if not isinstance(config.data, FolderConfig):
            raise UserError(f"--root is for folder data; the run {folder.path} used '{config.data.name}'.")
        config = config.model_copy(update={"data": config.data.model_copy(update={"root": root})})
    done = folder.finished_steps()
    if done == 0:
        raise UserError(f"The run {folder.path} has no finished step yet; continue it with 'faircl train … --resume'.")
    if step is not None and not 0 <= step < done:
        raise UserError(f"The run {folder.path} has no step {step}; finished steps run from 0 to {done - 1}.")
    data = config.data.open()
    scenario = _scenario(folder, data, config.data.test, reporter)
    found = []
    with process_settings(config.train):
        # Any device will do, whatever the run was trained on. Precision is that of the weights.
        fabric = make_fabric(config.train.model_copy(update={"accelerator": "auto", "precision": "fp32"}))
        for one in range(done) if step is None else [step]:
            model = build_model(config, pretrained=False)
            load_step(folder.step_path(one), model, None)
            metrics, _ = evaluate(
                model.to(fabric.device),
                data,
                config.data.test,
                scenario,
                one,
                batch=config.eval.batch,
                workers=config.train.workers,
                reporter=reporter,
            )
            found.append(metrics)
    return found


def _scenario(folder: RunFolder, data: SegmentationData, split: str, reporter: Reporter) -> Scenario:
    """Return the run's scenario, with today's test images; training images are not needed."""
    try:
        scenario = Scenario.from_json(folder.scenario())
    except (KeyError, TypeError, IndexError) as error:
        raise UserError(f"{folder.path / 'scenario.json'} lacks {error}; the run folder is damaged.") from None
    if data.classes != scenario.classes:
        raise UserError(
            f"The data's classes are not those {folder.path} was trained on: found {', '.join(data.classes.names)}; "
            f"expected {', '.join(scenario.classes.names)}."
        )
    images = tuple(data.ids(split))
    if images != scenario.test_images:
        reporter.say(
            f"note: evaluating on {len(images)} test images; {folder.path} was evaluated on other "
            f"{len(scenario.test_images)}"
        )
    return replace(scenario, test_images=images)
