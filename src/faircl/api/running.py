"""Training a run, and evaluating its saved steps again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from faircl.api.configuring import Settings, load_config
from faircl.api.opening import RunSource, run_folder

if TYPE_CHECKING:
    from faircl.config.run import RunConfig
    from faircl.metrics import StepMetrics
    from faircl.progress import Reporter
    from faircl.runs.run import Run


def train(
    recipe: str | Path | RunConfig,
    out: str | Path,
    settings: Settings = None,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
) -> Run:
    """Train all steps of a configuration into the folder ``out``, evaluating after each, and return the run.

    ``recipe`` and ``settings`` are those of `load_config`. ``resume`` continues a run at its first unfinished step.
    Progress goes to ``reporter``, by default to standard error; ``faircl.SilentReporter()`` shows none. Under torchrun
    all processes call it alike.
    """
    from faircl.distributed import on_rank_zero
    from faircl.engine.trainer import train as train_run
    from faircl.runs.run import load_run

    folder = train_run(load_config(recipe, settings), Path(out), reporter or _console(), resume)
    return on_rank_zero(lambda: load_run(folder.path))


def evaluate(
    run: RunSource,
    step: int | None = None,
    root: str | Path | None = None,
    convention: str | None = None,
    *,
    reporter: Reporter | None = None,
) -> list[StepMetrics]:
    """Evaluate the saved networks of a run again, all steps or one, on the test images.

    ``root`` says where the data folder is now, if it has moved. ``convention`` scores by ``full``, ``plop`` or ``mib``
    instead of the run's own convention.
    """
    from faircl.config.run import parse_convention
    from faircl.engine.reevaluate import evaluate_again

    folder = run_folder(run)
    by = None if convention is None else parse_convention(convention)
    return evaluate_again(folder, reporter or _console(), step, None if root is None else Path(root), by)


def _console() -> Reporter:
    from faircl.progress import ConsoleReporter

    return ConsoleReporter()
