"""``faircl gradients``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import faircl
from faircl.cli.output import Format, Json, Output, print_json
from faircl.tables import Column, Table, Value


def gradients(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder written by 'faircl train'.")],
    step: Annotated[int, typer.Option(help="This step; -1 is the last.")] = -1,
    images: Annotated[int, typer.Option(help="How many of the step's training images to measure.")] = 50,
    root: Annotated[Path | None, typer.Option(help="Where the data folder is now, if it has moved.")] = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Show the gradient norm of every class in a trained network, with and without the run's fairness term.

    Shares of the gradient norms of the segmentation loss at the logits, on training images of a step.

    [bold]Examples[/bold]

    faircl gradients runs/first

    faircl gradients runs/first --step 0 --images 200 --format csv
    """
    found = faircl.gradient_norms(run, step, images, root)
    if as_json:
        print_json(found.to_json())
        return
    columns = [Column("class", wrap=False), Column("pixels %", 2), Column("without %", 2), Column("with %", 2)]
    rows: list[list[Value]] = [[c.name, c.pixel_share, c.without_term, c.with_term, c.ratio] for c in found.classes]
    Output(form).table(
        Table(
            [*columns, Column("with / without", 2)],
            rows,
            title=f"Gradient norms after step {found.step}, {found.images} training images",
            caption="shares of all pixels, and of the gradient norms without and with the fairness term",
            boxed=True,
        )
    )
