"""Opening runs, data sets and scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from faircl.api.configuring import Settings, as_overrides
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.config.schema import ScenarioConfig
    from faircl.data.sample import SegmentationData
    from faircl.progress import Reporter
    from faircl.readers.base import ReaderConfig
    from faircl.runs.folder import RunFolder
    from faircl.runs.run import Run
    from faircl.scenario import Scenario

RunSource: TypeAlias = Union[str, Path, "Run"]
"""A run, or the path of its folder."""
DataSource: TypeAlias = str | Path | Mapping[str, Any]
"""A folder of images and masks, the name of a reader, or the settings of a reader with its name."""


def open_run(path: str | Path) -> Run:
    """Open the folder of a run that has finished at least one step.

    ``run.steps`` holds the metrics after every step, ``run.final`` those after the last, ``run.config`` the settings,
    ``run.scenario`` the classes and images of every step.
    """
    import yaml

    from faircl.runs.reading import CONFIG, METRICS
    from faircl.runs.run import load_run

    if not isinstance(path, str | Path):
        raise UserError(f"Expected the path of a run folder; found {path!r}.")
    folder = folder_path(path)
    if (folder / CONFIG).is_file() and not (folder / METRICS).is_file():
        raise UserError(f"The run {folder} has no finished step yet; continue it: faircl train --resume {folder}.")
    try:
        return load_run(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        found = " ".join(str(error).split())
        raise UserError(f"Cannot read the run {folder}: {type(error).__name__} {found}; it is damaged.") from None


def open_data(name: str, root: str | Path | None = None, **settings: Any) -> SegmentationData:
    """Open a data set by the name of its reader (`list_readers`).

    ``settings`` are the reader's own, as in the section ``data`` of a configuration:
    ``open_data("scenes", images=40, size=64)``. The result has ``classes``, ``ids(split)`` and ``read(split, id)``.
    """
    reader, _ = data_settings(name, root, settings={f"data.{key}": value for key, value in settings.items()})
    return reader.open()


def open_scenario(
    data: str,
    root: str | Path | None = None,
    *,
    task: str | Sequence[Sequence[int | str]] = "offline",
    setting: str | None = None,
    protocol: str | None = None,
    order: str | Sequence[int | str] | None = None,
    convention: str = "full",
    joint: bool = False,
    settings: Settings = None,
    cache: bool = True,
    reporter: Reporter | None = None,
) -> Scenario:
    """Return the continual scenario of a data set: classes, training images and test images of every step.

    ``data`` and ``root`` are those of `open_data`. ``task`` is ``"15-1"``, ``"6-2-3"``, ``"offline"`` or lists of
    classes; ``setting`` is overlapped (the default), disjoint or sequential; ``protocol`` is classes (the default),
    clean or plop; ``order`` lists classes or domains, or is ``"random:SEED"``. ``joint`` puts all classes into one
    step. ``settings`` changes others, such as ``{"data.train": "val", "scenario.split_seed": 1}``. Masks are counted
    once and the counts kept in a cache; images are not read.
    """
    from faircl.config.run import parse_convention
    from faircl.progress import ConsoleReporter
    from faircl.scenario.from_config import make_scenario

    wanted = {"task": task, "setting": setting, "protocol": protocol, "order": order}
    reader, config = data_settings(data, root, wanted, settings)
    made = make_scenario(
        reader.open(),
        reader,
        config,
        reporter or ConsoleReporter(),
        convention=parse_convention(convention),
        joint=joint,
        cache=cache,
    )
    return made.scenario


def data_settings(
    data: str,
    root: str | Path | None = None,
    scenario: Mapping[str, Any] | None = None,
    settings: Settings = None,
) -> tuple[ReaderConfig, ScenarioConfig]:
    """Return the configuration of a data set and of a scenario on it; a mistake in either is one sentence."""
    from faircl.config.run import parse_data
    from faircl.registry import READERS

    fields = READERS.get(data).Config.model_fields
    if root is not None and "root" not in fields:
        instead = "; set data.path instead" if "path" in fields else ""
        raise UserError(f"Data set '{data}' has no root, found root {root}{instead}.")
    tree: dict[str, Any] = {"name": data} | ({} if root is None else {"root": str(root)})
    given = {key: _plain(value) for key, value in (scenario or {}).items() if value is not None}
    return parse_data({"data": tree, "scenario": given}, as_overrides(settings))


def run_folder(run: RunSource) -> RunFolder:
    """Return the folder of a run; a UserError where there is none."""
    from faircl.runs.folder import RunFolder

    return RunFolder.open(folder_path(run))


def version_folder(run: RunSource, version: int | None = None) -> RunFolder:
    """Return the folder of a version of a run, by default of the newest accepted one."""
    from faircl.runs.folder import RunFolder
    from faircl.runs.versions import VersionChain

    folder = run_folder(run)
    return RunFolder(VersionChain(folder.path).find(version))


def folder_path(run: RunSource) -> Path:
    """Return the path of a run's folder; that of a folder exported for the Hugging Face hub lies inside it."""
    from faircl.runs.reading import CONFIG, EXPORTED_RUN

    if isinstance(run, str | Path):
        path = Path(run).expanduser()
        exported = (path / EXPORTED_RUN / CONFIG).is_file() and not (path / CONFIG).is_file()
        return path / EXPORTED_RUN if exported else path
    folder = getattr(run, "folder", None)
    if not isinstance(folder, Path):
        raise UserError(f"Expected a run or the path of its folder; found {run!r}.")
    return folder


def _plain(value: Any) -> Any:
    """Return sequences as lists, which the configuration wants."""
    return [_plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
