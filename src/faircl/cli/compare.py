"""``faircl compare``: finished runs side by side, seeds of one method together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import faircl
from faircl.cli.output import Format, Json, Output, print_json
from faircl.tables import Column, MeanStd, Table

if TYPE_CHECKING:
    from faircl.runs.run import Run


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="[LABEL=]RUN...", help="Run folders; a label puts runs into one row.")
    ],
    page: Annotated[
        Path | None, typer.Option("--page", readable=False, help="Also write comparison.html into this folder.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also compare runs of different data, tasks or images, with a note.")
    ] = False,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Put finished runs side by side, after their last step; runs of one label are averaged.

    A run's label is its method unless one is given. Behind ± is the standard deviation over the runs of a row. From the
    third step on, classes of the first step and all added ones have columns too, headed as in published tables. Runs of
    different data or tasks, or evaluated on different images, are refused.

    [bold]Examples[/bold]

    faircl compare runs/fine runs/fair runs/joint

    faircl compare runs/mib-0 runs/mib-1 runs/mib-2 runs/faircl-0 runs/faircl-1 runs/faircl-2

    faircl compare plain=runs/a 'no fairness'=runs/b --page runs/table --json
    """
    labels, folders = zip(*map(_labelled, runs), strict=True)
    made = faircl.compare(folders, labels, page, anyway=anyway)
    rows = [asdict(row) for row in made.rows]
    if as_json:
        print_json({"rows": rows, "notes": made.notes, "page": None if made.page is None else str(made.page)})
        return
    output = Output(form)
    output.table(_table(rows, [run for _, run in made.runs]))
    for note in made.notes:
        output.text(note)
    if made.page is not None:
        output.text(f"page: {made.page}")


def _labelled(text: str) -> tuple[str, Path]:
    """Split ``label=path``; a path that is there wins over a label."""
    label, equals, path = text.partition("=")
    return ("", Path(text)) if not equals or Path(text).exists() else (label, Path(path))


def _table(rows: Sequence[dict[str, Any]], runs: Sequence[Run]) -> Table:
    from faircl.report.run_tables import shared_groups

    several, first = any(len(row["runs"]) > 1 for row in rows), runs[0]
    groups = {"old": "old", "new": "new"} | shared_groups([run.final for run in runs])
    names = groups | {"all": "all", "std": "STD", "rarest_third": "rarest\nthird", "forgetting": "forgetting"}
    columns = [Column("method"), *([Column("runs", wrap=False)] if several else [])]
    columns += [*(Column(name, 1, wrap=False) for name in names.values()), Column("worst", detail=True)]
    cells = []
    for row in rows:
        count = len(row["runs"])
        pairs = [(row["mean"][name], row["spread"][name]) for name in names]
        numbers = [MeanStd(mean, spread) if count > 1 else mean for mean, spread in pairs]
        worst = ", ".join(row["worst"][:2]) or None
        cells.append([row["label"], *([count] if several else []), *numbers, worst])
    caption = f"IoU in percent after the last step, convention {first.final.convention}"
    return Table(columns, cells, title=f"{first.task}, {first.model}", caption=caption)
