"""Comparing runs: a row per label, what differs significantly, and what keeps them from being comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from faircl.api.opening import RunSource, open_run
from faircl.errors import UserError, did_you_mean
from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.rows import Row

__all__ = ["Comparison", "Row", "compare"]


def compare(
    runs: Sequence[RunSource],
    names: Sequence[str] | None = None,
    out: str | Path | None = None,
    *,
    anyway: bool = False,
    against: str | None = None,
    published: bool = True,
) -> Comparison:
    """Put runs side by side, after their last step; runs of one name are averaged.

    ``names`` gives every run a name, by default that of its method. With ``out`` the page comparison.html is written
    into that folder. Runs of different data, tasks or images, and a run given twice, are refused; with ``anyway`` a
    note says so instead. ``against`` names the runs that the others are compared with image by image, by default the
    first ones; ``published`` adds the published numbers of the same benchmark.
    """
    if isinstance(runs, str | Path) or not runs:
        raise UserError(f"Runs to compare are a list of at least one run folder; found {runs!r}.")
    if names is not None and len(names) != len(runs):
        raise UserError(f"There are {len(runs)} runs to compare but {len(names)} names; give every run one.")
    from faircl.runs.comparability import comparison_obstacles, comparison_warnings, repeat_warnings
    from faircl.runs.run import Run

    loaded = [run if isinstance(run, Run) else open_run(run) for run in runs]
    named = tuple((name or run.method, run) for name, run in zip(names or [""] * len(loaded), loaded, strict=True))
    reference = named[0][0] if against is None else against
    if reference not in dict(named):
        labels = list(dict(named))
        raise UserError(
            f"There is no run labelled '{reference}' to compare against; the labels are {', '.join(labels)}."
            f"{did_you_mean(reference, labels)}"
        )
    obstacles = comparison_obstacles(loaded)
    if obstacles and not anyway:
        raise UserError(
            f"These runs are not comparable: {'; '.join(obstacles)}; leave out what differs, or add --anyway "
            "(anyway=True) to put them side by side all the same."
        )
    from faircl.report.comparison.making import make_comparison

    warnings = [*obstacles, *comparison_warnings(loaded), *repeat_warnings(named)]
    made = make_comparison(named, reference, warnings, published=published)
    if out is not None:
        from faircl.report.comparison.page import write_comparison_page

        made = replace(made, page=write_comparison_page(Path(out), made))
    return made
