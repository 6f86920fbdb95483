"""Evaluating a version of a model on any data set that names its classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from faircl.deploy.adding.added_step import Base
from faircl.deploy.matched_data import TEST, MatchedData
from faircl.deploy.scored_images import open_scored_images
from faircl.engine.evaluate import evaluate
from faircl.engine.network import move_to_device
from faircl.engine.reevaluate import load_network, saved_steps
from faircl.engine.runtime import make_fabric, process_settings
from faircl.metrics import StepMetrics
from faircl.progress import Reporter
from faircl.runs.folder import RunFolder
from faircl.scenario.class_steps import with_background_presence


def evaluate_on(
    folder: RunFolder, data: Mapping[str, Any], step: int | None, same: Mapping[str, str], reporter: Reporter
) -> StepMetrics:
    """Evaluate a saved step, by default the last, on the test split of a data set, by the settings of its reader."""
    base = Base.open(folder)
    if step is not None:
        base = replace(base, step=saved_steps(folder, step)[0])
    test = open_scored_images(base.known, data, same, reporter)
    steps = tuple(replace(one, test_images=test.index.ids) for one in base.scenario.steps)
    scenario = with_background_presence(replace(base.scenario, steps=steps), test.index)
    config = base.config
    with process_settings(config.train):
        fabric = make_fabric(config.train.model_copy(update={"accelerator": "auto", "precision": "fp32"}))
        metrics, _ = evaluate(
            move_to_device(load_network(folder, config, base.step), fabric.device),
            MatchedData(scenario.classes, {TEST: test.source}),
            TEST,
            scenario,
            base.step,
            size=config.eval.size,
            batch=config.eval.batch,
            workers=config.train.workers,
            reporter=reporter,
        )
        return metrics
