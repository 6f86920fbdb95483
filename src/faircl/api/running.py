"""Training a run, and evaluating its saved steps again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from faircl.api.configuring import Settings, as_overrides, settings_tree
from faircl.api.opening import DataSource, RunSource, folder_path, run_folder, version_folder
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.config.run import RunConfig
    from faircl.data.sample import SegmentationData
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

    ``recipe`` and ``settings`` are those of `load_config`; one of them must set ``scenario.task``. ``resume`` continues
    the run that was begun in ``out``; the function `resume` does so without being told its settings again. Progress
    goes to ``reporter``, by default to standard error; ``faircl.SilentReporter()`` shows none. Under torchrun all
    processes call it alike.
    """
    return _train(recipe, Path(out), settings, resume, reporter)


def resume(run: RunSource, settings: Settings = None, *, reporter: Reporter | None = None) -> Run:
    """Continue a run where it stopped, with the settings it was begun with, and return it; a finished one is read.

    ``settings`` may change what does not change the run, such as ``{"train.workers": 4}``, or ``{"data.root": …}`` if
    the data has moved. ``reporter`` is that of `train`.
    """
    return _train(None, folder_path(run), settings, True, reporter)


def evaluate(
    run: RunSource,
    step: int | None = None,
    root: str | Path | None = None,
    convention: str | None = None,
    images: str | None = None,
    *,
    data: DataSource | None = None,
    version: int | None = None,
    reporter: Reporter | None = None,
) -> list[StepMetrics]:
    """Evaluate the saved networks of a run again, all steps or one.

    With ``data``, a folder or a reader with its ``root``, the model in use is evaluated on that data's test images, or
    the ``version`` given: classes are matched by name, and the result is that of one step, by default the last.

    Without it the run is evaluated as it was trained. ``root`` says where the data folder is now, if it has moved.
    ``convention`` scores by ``full``, ``plop`` or ``mib`` instead of the run's own convention, ``images`` on the
    ``test`` or the ``validation`` images instead of its own (``eval.images``).
    """
    from faircl.config.run import parse_convention, parse_images

    if data is not None:
        if convention is not None or images is not None:
            raise UserError("Other data is evaluated on its test images, by convention full; leave the two out.")
        from faircl.deploy.reader_settings import reader_settings

        settings = reader_settings(data, root)
        from faircl.deploy.evaluation import evaluate_on

        return [evaluate_on(version_folder(run, version), settings, step, {}, reporter or _console())]
    if version:
        raise UserError(f"Version {version} has no test data of its own; say what to evaluate it on with --data.")
    from faircl.engine.reevaluate import evaluate_again

    folder = run_folder(run)
    by = None if convention is None else parse_convention(convention)
    on = None if images is None else parse_images(images)
    return evaluate_again(folder, reporter or _console(), step, None if root is None else Path(root), by, on)


def _train(
    recipe: str | Path | RunConfig | None, out: Path, settings: Settings, resume: bool, reporter: Reporter | None
) -> Run:
    if _several():  # the processes must know each other, so that one of them reports a mistake
        from faircl.distributed import init_process_group

        init_process_group()
    config, data = _prepared(recipe, out, settings, resume)
    _check_folder_and_device(config, out, resume)

    from faircl.distributed import on_rank_zero
    from faircl.engine.trainer import train as train_run
    from faircl.runs.run import load_run

    folder = train_run(config, out, reporter or _console(), resume, data)
    return on_rank_zero(lambda: load_run(folder.path))


def _prepared(
    recipe: str | Path | RunConfig | None, out: Path, settings: Settings, resume: bool
) -> tuple[RunConfig, SegmentationData]:
    """Read and check the configuration of a run and open its data; without a recipe it is that of the run ``out``.

    A mistake that can be found without torch is found before it is imported.
    """
    from faircl.config.prepared import open_data, prepare
    from faircl.config.run import RunConfig, apply_overrides
    from faircl.runs.begun import check_begun
    from faircl.runs.reading import read_config

    if resume:
        check_begun(out)
    overrides = as_overrides(settings)
    if recipe is None:
        tree = apply_overrides(read_config(out), overrides)
        root = tree["data"].get("root") if isinstance(tree.get("data"), dict) else None
        try:
            return prepare(tree)
        except UserError as error:
            if root is None or Path(str(root)).is_dir():
                raise
            raise UserError(f"{error} If the data has moved, say where it is with --root.") from None
    if isinstance(recipe, RunConfig) and not overrides:
        return recipe, open_data(recipe)
    return prepare(settings_tree(recipe, overrides))


def _check_folder_and_device(config: RunConfig, out: Path, resume: bool) -> None:
    """Find what can be found before the engine is imported, which takes seconds; training checks it again."""
    from faircl.devices import check_device
    from faircl.engine.loggers.services import check_installed
    from faircl.runs.folder import RunFolder
    from faircl.runs.lock import RunLock

    if not _several():  # of several processes the first logs; training asks it
        check_installed(config.train.loggers)
    check_device(config.train)
    folder = RunFolder(out)
    folder.check_free(config.model_copy(update={"data": config.data.absolute()}), resume)
    if folder.begun() and not _several():
        with RunLock(out) as lock:
            lock.acquire()


def _several() -> bool:
    from faircl.parallel import launched_world_size

    return launched_world_size() > 1


def _console() -> Reporter:
    from faircl.progress import ConsoleReporter

    return ConsoleReporter()
