"""``faircl compare``: finished runs side by side, seeds of one method together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faircl.cli.output import Format, Json, Output, print_json
from faircl.tables import Column, MeanStd, Table

if TYPE_CHECKING:
    from faircl.runs.run import Run

MEASURES = ("old", "new", "all", "std", "rarest_third", "forgetting")


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="[LABEL=]RUN...", help="Run folders; a label puts runs into one row.")
    ],
    page: Annotated[
        Path | None, typer.Option("--page", readable=False, help="Also write comparison.html into this folder.")
    ] = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Put finished runs side by side, after their last step; runs of one label are averaged.

    A run's label is its method unless one is given. Behind ± is the standard deviation over the runs of a row.

    [bold]Examples[/bold]

    faircl compare runs/fine runs/fair runs/joint

    faircl compare runs/mib-0 runs/mib-1 runs/mib-2 runs/faircl-0 runs/faircl-1 runs/faircl-2

    faircl compare plain=runs/a 'no fairness'=runs/b --page runs/table --json
    """
    from faircl.report.page import write_comparison_page
    from faircl.runs.comparability import comparison_warnings, repeat_warnings
    from faircl.runs.run import load_run

    loaded = [(label, load_run(path)) for label, path in map(_labelled, runs)]
    named = [(label or run.method, run) for label, run in loaded]
    rows = [_row(label, [run for other, run in named if other == label]) for label in dict(named)]
    warnings = [*comparison_warnings([run for _, run in named]), *repeat_warnings(named)]
    notes = [f"warning: {text}" for text in warnings]
    written = None if page is None else write_comparison_page(page, [(label, run.folder) for label, run in named])
    if as_json:
        print_json({"rows": rows, "notes": notes, "page": None if written is None else str(written)})
        return
    output = Output(form)
    output.table(_table(rows, named[0][1]))
    for note in notes:
        output.text(note)
    if written is not None:
        output.text(f"page: {written}")


def _labelled(text: str) -> tuple[str, Path]:
    """Split ``label=path``; a path that is there wins over a label."""
    label, equals, path = text.partition("=")
    return ("", Path(text)) if not equals or Path(text).exists() else (label, Path(path))


def _row(label: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Mean and population standard deviation of every measure over the runs of a label."""
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
    folders = [str(run.folder) for run in runs]
    return {"label": label, "runs": folders, "mean": means, "spread": spreads, "worst": worst}


def _table(rows: Sequence[dict[str, Any]], first: Run) -> Table:
    several = any(len(row["runs"]) > 1 for row in rows)
    names = ("old", "new", "all", "STD", "rarest\nthird", "forgetting")
    columns = [Column("method"), *([Column("runs", wrap=False)] if several else [])]
    columns += [*(Column(name, 1, wrap=False) for name in names), Column("worst", detail=True)]
    cells = []
    for row in rows:
        count = len(row["runs"])
        pairs = [(row["mean"][name], row["spread"][name]) for name in MEASURES]
        numbers = [MeanStd(mean, spread) if count > 1 else mean for mean, spread in pairs]
        worst = ", ".join(row["worst"][:2]) or None
        cells.append([row["label"], *([count] if several else []), *numbers, worst])
    caption = f"IoU in percent after the last step, convention {first.final.convention}"
    return Table(columns, cells, title=f"{first.task}, {first.model}", caption=caption)
