"""One self-contained HTML file per run or comparison, readable offline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import Markup

from faircl.errors import UserError
from faircl.report import plots
from faircl.report.pictures import comparison_strips
from faircl.report.rendering import write_page
from faircl.report.run_page import write_view
from faircl.report.run_tables import class_comparison_table, comparison_table
from faircl.report.run_view import view_run
from faircl.report.story import told
from faircl.runs.comparability import comparison_obstacles, comparison_warnings
from faircl.runs.run import Run, load_run
from faircl.tables import Table, show

_LEADS: tuple[tuple[str, Callable[[Run], float], int, str], ...] = (
    ("Highest mean IoU", lambda run: run.final.groups["all"].miou, +1, "%"),
    ("Highest mean IoU on the rarest third of the classes", lambda run: run.final.rarest_third, +1, "%"),
    ("Smallest gap between best and worst class", lambda run: run.final.gap, -1, "points"),
)


def write_run_page(run_dir: Path) -> Path:
    """Write ``report.html`` into a run folder and return its path."""
    return write_view(view_run(load_run(run_dir)), Path(run_dir) / "report.html")


def write_comparison_page(out_dir: Path, runs: Sequence[tuple[str, Path]], table: Table | None = None) -> Path:
    """Write ``comparison.html`` into a folder, made if need be, and return its path.

    ``runs`` are labels and run folders; ``table`` is the table on top, by default ``comparison_table`` of the runs.
    """
    if not runs:
        raise UserError("There is no run to compare; give at least one run folder.")
    loaded = [(label, load_run(folder)) for label, folder in runs]
    figures = [
        (
            "IoU of every class after the last step, the most frequent class first.",
            plots.comparison_bars([(label, run.final) for label, run in loaded]),
        )
    ]
    if any(len(run.steps) > 1 for _, run in loaded):
        steps = [(label, run.steps) for label, run in loaded]
        figures.append(("Mean IoU of the classes seen so far.", plots.comparison_over_steps(steps)))
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    return write_page(
        out_dir / "comparison.html",
        "comparison.html.j2",
        title=f"Comparison of {len(runs)} runs" if len(runs) > 1 else f"Run {runs[0][0]}",
        runs=loaded,
        summary=comparison_summary(loaded),
        table=table or comparison_table(loaded),
        classes=class_comparison_table(loaded),
        figures=[(caption, Markup(svg)) for caption, svg in figures],
        strips=comparison_strips(loaded),
    )


def comparison_summary(runs: Sequence[tuple[str, Run]]) -> str:
    """Return which run leads in accuracy and in fairness, and what keeps the runs from being comparable."""
    if len(runs) < 2:
        return " ".join(told(view_run(runs[0][1])))
    text = []
    for what, measure, sign, unit in _LEADS:
        known = [(measure(run), label) for label, run in runs if not math.isnan(measure(run))]
        if known:
            value = max(sign * measure for measure, _ in known) * sign
            shown = show(value, 1)
            leaders = [label for measure, label in known if show(measure, 1) == shown]
            if len(leaders) < len(known):
                text.append(f"{what}: {' and '.join(leaders)}, {shown}\N{NO-BREAK SPACE}{unit}")
    compared = [run for _, run in runs]
    text += [f"Note that {found}" for found in (*comparison_obstacles(compared), *comparison_warnings(compared))]
    return ". ".join(text) + "."
