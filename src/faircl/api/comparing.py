"""Comparing runs: a row per label, the mean over its runs, and what keeps them from being comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faircl.api.opening import RunSource, open_run
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.runs.run import Run
    from faircl.tables import Table

MEASURES = ("old", "new", "all", "std", "rarest_third", "forgetting")


@dataclass(frozen=True)
class Row:
    """Runs of one label after their last step: mean and population standard deviation of every measure.

    Measures are the mean IoU of ``old``, ``new`` and ``all`` classes, ``std`` over all classes, ``rarest_third`` and
    ``forgetting``, in percent; ``worst`` names the worst class of each run.
    """

    label: str
    runs: tuple[str, ...]
    mean: dict[str, float]
    spread: dict[str, float]
    worst: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side: each with its label, a row per label, warnings, and the page where one was written."""

    runs: tuple[tuple[str, Run], ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    page: Path | None

    @property
    def table(self) -> Table:
        """One row per run; ``table.markdown()``, ``table.latex()`` and ``table.csv()`` print it."""
        from faircl.report.run_tables import comparison_table

        return comparison_table(self.runs)


def compare(runs: Sequence[RunSource], names: Sequence[str] | None = None, out: str | Path | None = None) -> Comparison:
    """Put runs side by side, after their last step; runs of one name are averaged.

    ``names`` gives every run a name, by default that of its method. With ``out`` the page comparison.html is written
    into that folder.
    """
    if isinstance(runs, str | Path) or not runs:
        raise UserError(f"Runs to compare are a list of at least one run folder; found {runs!r}.")
    if names is not None and len(names) != len(runs):
        raise UserError(f"There are {len(runs)} runs to compare but {len(names)} names; give every run one.")
    loaded = [open_run(run) if isinstance(run, str | Path) else run for run in runs]
    named = tuple((name or run.method, run) for name, run in zip(names or [""] * len(loaded), loaded, strict=True))
    rows = tuple(_row(label, [run for other, run in named if other == label]) for label in dict(named))
    notes = (*_notes(loaded), *_unlike(named))
    page = None
    if out is not None:
        from faircl.report.page import write_comparison_page

        page = write_comparison_page(Path(out), [(label, run.folder) for label, run in named])
    return Comparison(named, rows, notes, page)


def _row(label: str, runs: Sequence[Run]) -> Row:
    import numpy as np

    from faircl.metrics import forgetting

    values: dict[str, list[float]] = {name: [] for name in MEASURES}
    for run in runs:
        groups = run.final.groups
        found = (groups["old"].miou, groups["new"].miou, groups["all"].miou, groups["all"].std)
        for name, value in zip(MEASURES, (*found, run.final.rarest_third, forgetting(run.steps).mean), strict=True):
            values[name].append(value)
    means = {name: float(np.mean(numbers)) for name, numbers in values.items()}
    spreads = {name: float(np.std(numbers)) for name, numbers in values.items()}
    worst = sorted({run.final.worst.name for run in runs if run.final.worst})
    return Row(label, tuple(str(run.folder) for run in runs), means, spreads, tuple(worst))


def _notes(runs: Sequence[Run]) -> list[str]:
    """Say what keeps the runs from being comparable."""
    notes = []
    keys = ("labels_sha256", "task", "setting")
    data = {
        (*(run.scenario_tree.get(key) for key in keys), run.scenario_tree.get("protocol", "classes")) for run in runs
    }
    if len(data) > 1:
        notes.append("warning: the runs differ in data, task, setting or protocol")
    if len({run.final.convention for run in runs}) > 1:
        notes.append("warning: the runs were scored by different conventions; 'faircl eval --convention' scores again")
    if len({run.model for run in runs}) > 1:
        notes.append("warning: the runs have different networks")
    for run in runs:
        wanted = len(run.scenario_tree.get("steps", ()))
        if len(run.steps) < wanted:
            notes.append(f"warning: {run.folder} has finished {len(run.steps)} of its {wanted} steps")
    if any(run.leaked > 0 for run in runs):
        notes.append("warning: runs were tested on images they have been trained on")
    return notes


def _unlike(named: Sequence[tuple[str, Run]]) -> list[str]:
    """Say which rows average runs that differ in more than their seed."""
    from faircl.config.describe import differences

    notes = []
    for label in dict(named):
        first, *others = (_settings(run) for other, run in named if other == label)
        if keys := sorted({key for run in others for key in differences(first, run)}):
            listed = ", ".join(keys[:3]) + (" and more" if len(keys) > 3 else "")
            notes.append(f"warning: the runs of row {label} differ in {listed}; give them labels of their own")
    return notes


def _settings(run: Run) -> dict[str, Any]:
    """Return what a run was made of but its seed, places and speed."""
    tree = {key: value for key, value in run.config_tree.items() if key not in ("seed", "eval")}
    speed = ("workers", "cache", "graphs", "threads", "log_every", "tensorboard", "accelerator")
    places = {"data": ("root", "saliency"), "train": speed}
    for section, keys in places.items():
        if isinstance(tree.get(section), dict):
            tree[section] = {key: value for key, value in tree[section].items() if key not in keys}
    return tree
