"""One self-contained HTML file of a comparison, readable offline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from faircl.errors import UserError
from faircl.files import write_text
from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.heat import difference_bars, heat_map
from faircl.report.comparison.plots import over_steps, pareto_plot
from faircl.report.comparison.strips import make_strips
from faircl.report.comparison.tables import main_table, run_table
from faircl.table_escapes import printable

_ELSEWHERE = "choose another folder for the page"


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
    # autoescape for every template: class names, labels and configurations are user input.
    environment = Environment(
        loader=PackageLoader("faircl.report"),
        finalize=_shown,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("comparison.html.j2").render(
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
    out_dir = Path(out_dir)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"Cannot make the folder {out_dir}: it is a file; {_ELSEWHERE}.") from None
    except OSError as error:
        raise UserError(f"Cannot make the folder {out_dir}: {error.strerror}; {_ELSEWHERE}.") from None
    write_text(out_dir / "comparison.html", html, _ELSEWHERE)
    return out_dir / "comparison.html"


def _shown(value: Any) -> Any:
    """Return what a template shows of a value: of plain text only what is printable."""
    return printable(value) if type(value) is str else value
