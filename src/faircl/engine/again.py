"""Evaluating a finished run's saved models again."""

from __future__ import annotations

from pathlib import Path

from faircl.data.readers import FolderConfig
from faircl.engine.checkpoint import load_step
from faircl.engine.evaluate import evaluate
from faircl.engine.network import build_model
from faircl.engine.plan import make_plan
from faircl.engine.run_folder import RunFolder
from faircl.engine.runtime import make_fabric, process_settings
from faircl.errors import UserError
from faircl.metrics import StepMetrics
from faircl.progress import Reporter


def evaluate_again(
    folder: RunFolder, reporter: Reporter, step: int | None = None, root: Path | None = None
) -> list[StepMetrics]:
    """Load each saved step (or one of them) and evaluate it; ``root`` says where the data folder is now."""
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
    found = []
    with process_settings(config.train):
        fabric = make_fabric(config.train)
        plan = make_plan(config, reporter)
        if plan.scenario.sha256 != folder.scenario()["sha256"]:
            reporter.say(f"note: the data differ from those {folder.path} was trained on (another scenario sha256)")
        for one in range(done) if step is None else [step]:
            model = build_model(config)
            load_step(folder.step_path(one), model, None)
            model.to(fabric.device)
            metrics, _ = evaluate(
                model,
                plan.data,
                config.data.test,
                plan.scenario,
                one,
                batch=config.eval.batch,
                workers=config.train.workers,
                reporter=reporter,
            )
            found.append(metrics)
    return found
