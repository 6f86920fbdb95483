"""Comparing runs: a row per label, the mean over its runs, and what keeps them from being comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faircl.api.opening import RunSource, open_run
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.runs.run import Run
    from faircl.tables import Table

GROUPS = ("old", "new", "initial", "added", "all")
MEASURES = (*GROUPS, "std", "rarest_third", "forgetting")


@dataclass(frozen=True)
class Row:
    """Runs of one label after their last step: mean and population standard deviation of every measure.

    Measures are the mean IoU of ``old``, ``new`` and ``all`` classes, and of the ``initial`` and ``added`` ones that
    published tables print, ``std`` over all classes, ``rarest_third`` and ``forgetting``, in percent; ``worst`` names
    the worst class of each run.
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


def compare(
    runs: Sequence[RunSource],
    names: Sequence[str] | None = None,
    out: str | Path | None = None,
    *,
    anyway: bool = False,
) -> Comparison:
    """Put runs side by side, after their last step; runs of one name are averaged.

    ``names`` gives every run a name, by default that of its method. With ``out`` the page comparison.html is written
    into that folder. Runs of different data, tasks or images, and a run given twice, are refused; with ``anyway`` a
    note says so instead.
    """
    if isinstance(runs, str | Path) or not runs:
        raise UserError(f"Runs to compare are a list of at least one run folder; found {runs!r}.")
    if names is not None and len(names) != len(runs):
        raise UserError(f"There are {len(runs)} runs to compare but {len(names)} names; give every run one.")
    from faircl.runs.comparability import comparison_obstacles, comparison_warnings, repeat_warnings
    from faircl.runs.run import Run

    loaded = [run if isinstance(run, Run) else open_run(run) for run in runs]
    named = tuple((name or run.method, run) for name, run in zip(names or [""] * len(loaded), loaded, strict=True))
    obstacles = comparison_obstacles(loaded)
    if obstacles and not anyway:
        raise UserError(
            f"These runs are not comparable: {'; '.join(obstacles)}; leave out what differs, or add --anyway "
            "(anyway=True) to put them side by side all the same."
        )
    rows = tuple(_row(label, [run for other, run in named if other == label]) for label in dict(named))
    warnings = [*obstacles, *comparison_warnings(loaded), *repeat_warnings(named)]
    notes = tuple(f"warning: {text}" for text in warnings)
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
        found = (*(groups[group].miou for group in GROUPS), groups["all"].std)
        for name, value in zip(MEASURES, (*found, run.final.rarest_third, forgetting(run.steps).mean), strict=True):
            values[name].append(value)
    means = {name: float(np.mean(numbers)) for name, numbers in values.items()}
    spreads = {name: float(np.std(numbers)) for name, numbers in values.items()}
    worst = sorted({run.final.worst.name for run in runs if run.final.worst})
    return Row(label, tuple(str(run.folder) for run in runs), means, spreads, tuple(worst))
