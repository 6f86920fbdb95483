"""``faircl serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import faircl


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    port: Annotated[int, typer.Option(help="Port of the page; 0: any free one.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than 127.0.0.1 open the page to other machines.")
    ] = "127.0.0.1",
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    max_bytes: Annotated[int, typer.Option(help="Largest image file that is accepted.")] = 20_000_000,
    max_pixels: Annotated[int, typer.Option(help="Largest image that is accepted, width times height.")] = 25_000_000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    r"""Open a local page: drop an image, compare what steps and versions of a run see in it.

    The page has a slider between two networks, shows or hides classes with their areas, and marks regions that the
    network does not know. It listens at 127.0.0.1 alone and writes nothing. When it is up, a line "ready: ADDRESS"
    appears on standard error. Ctrl-C ends it. Needs pip install 'faircl\[serve]'.

    [bold]Examples[/bold]

    faircl serve runs/first --open

    faircl serve runs/first --port 0 --max-bytes 50000000 --max-pixels 100000000
    """
    faircl.serve(
        run,
        host=host,
        port=port,
        device=device,
        max_bytes=max_bytes,
        max_pixels=max_pixels,
        open_browser=open_browser,
    )
