"""One self-contained HTML file of a comparison, readable offline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from faircl.errors import UserError
from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.heat import difference_bars, heat_map
from faircl.report.comparison.plots import over_steps, pareto_plot
from faircl.report.comparison.strips import make_strips
from faircl.report.comparison.tables import main_table, run_table
from faircl.report.rendering import write_page


def write_comparison_page(out_dir: Path, comparison: Comparison) -> Path:
    """Write ``comparison.html`` into a folder, made if need be, whole or not at all; return its path."""
    several = len(comparison.rows) > 1
    figures, table = [], main_table(comparison)
    if several:
        caption = (
            "Accuracy and fairness together: mean IoU of all classes and the standard deviation between classes. The "
            "dashed line is the Pareto front: no run on it is beaten in both. Hollow marks are levelled down: another "
            "run is less even, but has a significantly higher mean IoU and serves the worst third of the classes no "
            "worse."
        )
        figures.append((caption, pareto_plot(comparison)))
    if any(len(run.steps) > 1 for _, run in comparison.runs):
        figures.append(("Mean IoU of the classes seen so far.", over_steps(comparison)))
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        found = error.strerror
        raise UserError(f"Cannot make the folder {out_dir}: {found}; choose another with --page.") from None
    return write_page(
        out_dir / "comparison.html",
        "comparison.html.j2",
        title=f"Comparison of {len(comparison.runs)} runs" if several else f"Run {comparison.rows[0].label}",
        comparison=comparison,
        task=comparison.runs[0][1].task,
        # Made by tables.py, which escapes names.
        table=Markup(replace(table, title="", caption="", footnotes=()).html()),
        table_notes=(f"{table.title}. {table.caption}.", *table.footnotes),
        runs_table=Markup(run_table(comparison).html()) if len(comparison.runs) > len(comparison.rows) else "",
        figures=[(caption, Markup(svg)) for caption, svg in figures],
        differences=[(change, *difference_bars(change.classes)) for change in comparison.changes.values()],
        heat=heat_map(comparison),
        strips=make_strips(comparison),
        background=comparison.runs[0][1].final.background,
    )
