"""``faircl compare``: finished runs side by side, seeds of one method together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import faircl
from faircl.cli.output import Format, Json, Output, print_json
from faircl.errors import UserError


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="[LABEL=]RUN...", help="Run folders; a label puts runs into one row.")
    ],
    page: Annotated[
        Path | None, typer.Option("--page", readable=False, help="Also write comparison.html into this folder.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="LABEL", help="Row that the others are compared with; by default the first."),
    ] = None,
    classes: Annotated[
        bool, typer.Option("--classes", help="Print every class: IoU, difference, its interval.")
    ] = False,
    layout: Annotated[
        Literal["full", "paper", "ablation", "groups"],
        typer.Option("--layout", help="Columns: all of them, or as in the tables of the paper."),
    ] = "full",
    published: Annotated[
        bool, typer.Option("--published/--no-published", help="Add published numbers of the same benchmark.")
    ] = True,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also compare runs of different data, tasks or images, with a note.")
    ] = False,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Put finished runs side by side, after their last step; runs of one label are averaged.

    A run's label is its method unless one is given. Behind ± is the standard deviation over the runs of a row. ▲ and ▼
    mark what is significantly better and worse than the first row, or the one of --against. STD and other spreads are
    highlighted only on the Pareto front with the mean IoU. From the third step on, classes of the first step and all
    added ones have columns too, headed as in published tables. Runs of different data or tasks, or evaluated on
    different images, are refused.

    [bold]Examples[/bold]

    faircl compare runs/fine runs/fair runs/joint

    faircl compare runs/mib-0 runs/mib-1 runs/mib-2 runs/faircl-0 runs/faircl-1 runs/faircl-2 --against mib

    faircl compare runs/mib runs/fair --layout paper --format latex > table.tex

    faircl compare plain=runs/a 'no fairness'=runs/b --page runs/table --json
    """
    if classes and layout != "full":
        raise UserError(
            f"Found --classes with --layout {layout}: a layout chooses columns of the table of runs, and the table of "
            "classes has its own; give one of the two."
        )
    labels, folders = zip(*map(_labelled, runs), strict=True)
    made = faircl.compare(folders, labels, page, anyway=anyway, against=against, published=published)
    if as_json:
        print_json(made.to_json())
        return
    from faircl.report.comparison.tables import main_table

    output = Output(form)
    output.table(made.class_table if classes else main_table(made, layout))
    for line in (*made.summary, *made.notes):
        output.text(line)
    if made.page is not None:
        output.text(f"page: {made.page}")


def _labelled(text: str) -> tuple[str, Path]:
    """Split ``label=path``; a path that is there wins over a label."""
    label, equals, path = text.partition("=")
    return ("", Path(text)) if not equals or Path(text).exists() else (label, Path(path))
