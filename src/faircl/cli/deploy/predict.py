"""``faircl predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import faircl
from faircl.cli.output import Format, Json, Output, print_json
from faircl.errors import UserError
from faircl.tables import Column, Table


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder written by 'faircl train'.")],
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGES...", help="Files, folders, or patterns such as 'photos/*.jpg'.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="New folder for the results.")],
    step: Annotated[int, typer.Option(help="Network of this step; -1: the last.")] = -1,
    version: Annotated[
        int | None, typer.Option("--version", help="This version of the run; otherwise the newest accepted one.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    batch: Annotated[
        int | None, typer.Option(help="Images of one size, or windows, at a time; default: 8 on a GPU, 1 on a CPU.")
    ] = None,
    tile: Annotated[
        int | None, typer.Option(help="Segment in windows of this side, a multiple of 32; for images of any size.")
    ] = None,
    overlap: Annotated[
        int | None, typer.Option(help="Pixels that neighbouring windows share, a multiple of 32; default: a quarter.")
    ] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Average with the mirrored image.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Compute in half precision; needs a GPU.")] = False,
    overlay: Annotated[bool, typer.Option(help="Write the classes painted over the image.")] = True,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write the probability of every class, as npz files.")
    ] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Write how little the network knows of every pixel.")
    ] = False,
    unknown_score: Annotated[
        str | None, typer.Option(metavar="NAME", help="Score of the unknown map.", show_default=False)
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that cannot be read, and list them.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted prediction.")] = False,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Segment images with a trained network: index masks, overlays, and the areas of all classes.

    Writes masks/, overlays/ and predictions.json. Names of results follow the tree of the images.

    [bold]Examples[/bold]

    faircl predict runs/first photo.jpg --out found

    faircl predict runs/first photos 'more/**/*.png' --out found --flip --json

    faircl predict runs/first plan.tif --out found --tile 1024

    faircl predict runs/first photos --out found --unknown --probabilities --no-overlay

    faircl predict runs/first photos --out found --resume
    """
    if unknown_score is not None and not unknown:
        raise UserError(f"A score of the unknown map, {unknown_score}, was given without the map; add --unknown.")
    made = faircl.predict(
        run,
        images,
        out,
        step=step,
        version=version,
        device=device,
        batch=batch,
        tile=tile,
        overlap=overlap,
        flip=flip,
        half=half,
        probabilities=probabilities,
        unknown=unknown_score or unknown,
        overlay=overlay,
        skip_broken=skip_broken,
        resume=resume,
    )
    if as_json:
        print_json(made)
        return
    output = Output(form)
    output.table(_table(made))
    for one in made["skipped"]:
        output.text(f"skipped: {one['reason']}")
    output.text(f"predictions: {out / 'predictions.json'}")


def _table(made: dict[str, Any]) -> Table:
    """Return the area of every class over all images, largest first."""
    images = made["images"]
    total = sum(one["width"] * one["height"] for one in images)
    found: dict[str, list[int]] = {one["name"]: [] for one in made["classes"]}
    for one in images:
        for area in one["areas"]:
            found[area["name"]].append(area["pixels"])
    ranked = sorted(found.items(), key=lambda pair: -sum(pair[1]))
    rows = [[name, sum(counts), 100 * sum(counts) / max(total, 1), len(counts)] for name, counts in ranked]
    columns = [Column("class"), Column("pixels"), Column("share", 2), Column("images")]
    title = f"{len(images)} image{'s' if len(images) != 1 else ''}, step {made['step']}"
    return Table(columns, rows, title=title, caption="share of all pixels in percent; images where the class occurs")
