"""``faircl report``: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import faircl
from faircl.cli.output import Json, Output, print_json


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of one of its versions.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", readable=False, help="An HTML file; otherwise report.html in the run.", show_default=False
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(help="The run as it was after this step, -1 the last; otherwise all.", show_default=False),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="This version of the run; otherwise RUN itself.", show_default=False)
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Json = False,
) -> None:
    """Write one HTML file that shows a run: which classes it serves badly, where their pixels went, how sure that is.

    The file opens without a network. It holds the headline with intervals, a summary in sentences, bars of every class
    after every step, confusions, a gallery with the masks over the images, and tables that can be sorted.

    [bold]Examples[/bold]

    faircl report runs/street

    faircl report runs/street --out street.html --open

    faircl report runs/street --step 0 --out before.html
    """
    page = faircl.write_report(run, out, step=step, version=version)
    if as_json:
        print_json({"page": str(page), "bytes": page.stat().st_size})
    else:
        Output().text(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB)")
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
