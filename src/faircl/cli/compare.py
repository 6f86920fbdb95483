"""``faircl compare``: finished runs side by side, seeds of one method together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import faircl
from faircl.api.comparing import MEASURES
from faircl.cli.output import WIDE, Json, console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from faircl.runs.run import Run


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="[LABEL=]RUN...", help="Run folders; a label puts runs into one row.")
    ],
    page: Annotated[
        Path | None, typer.Option("--page", readable=False, help="Also write comparison.html into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Put finished runs side by side, after their last step; runs of one label are averaged.

    A run's label is its method unless one is given. Behind ± is the standard deviation over the runs of a row.

    [bold]Examples[/bold]

    faircl compare runs/fine runs/fair runs/joint

    faircl compare runs/mib-0 runs/mib-1 runs/mib-2 runs/faircl-0 runs/faircl-1 runs/faircl-2

    faircl compare plain=runs/a 'no fairness'=runs/b --page runs/table --json
    """
    labels, folders = zip(*map(_labelled, runs), strict=True)
    made = faircl.compare(folders, labels, page)
    rows = [asdict(row) for row in made.rows]
    if as_json:
        print_json({"rows": rows, "notes": made.notes, "page": None if made.page is None else str(made.page)})
        return
    console().print(_table(rows, made.runs[0][1], wide=console().width >= WIDE))
    for note in made.notes:
        console().print(note, markup=False, soft_wrap=True)
    if made.page is not None:
        print(f"page: {made.page}")


def _labelled(text: str) -> tuple[str, Path]:
    """Split ``label=path``; a path that is there wins over a label."""
    label, equals, path = text.partition("=")
    return ("", Path(text)) if not equals or Path(text).exists() else (label, Path(path))


def _table(rows: Sequence[dict[str, Any]], first: Run, wide: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    several = any(len(row["runs"]) > 1 for row in rows)
    shown, last = ("runs",) if several else (), ("worst",) if wide else ()
    columns = ("method", *shown, "old", "new", "all", "STD", "rarest\nthird", "for-\ngetting", *last)
    caption = f"IoU in percent after the last step, convention {first.final.convention}"
    table = Table(title=Text(f"{first.task}, {first.model}"), caption=caption, header_style="bold", box=None)
    for column in columns:
        text = column in ("method", "worst")
        table.add_column(column, no_wrap=not text, justify="left" if text else "right")
    for row in rows:
        numbers = [_number(row["mean"][name], row["spread"][name], len(row["runs"])) for name in MEASURES]
        count = (str(len(row["runs"])),) if several else ()
        worst = (Text(", ".join(row["worst"][:2])),) if wide else ()
        table.add_row(Text(row["label"]), *count, *numbers, *worst)
    return table


def _number(mean: float, spread: float, runs: int) -> str:
    if mean != mean:  # NaN: joint training has forgotten nothing
        return "–"
    return f"{mean:.1f}±{spread:.1f}" if runs > 1 else f"{mean:.1f}"
