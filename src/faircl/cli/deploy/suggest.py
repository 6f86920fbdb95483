"""``faircl suggest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import faircl
from faircl.cli.output import Json, Output, print_json


def suggest(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run whose model labels new images.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    images: Annotated[
        list[Path] | None, typer.Argument(metavar="IMAGES", help="Image files, and folders of images.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", "-d", help="Instead of IMAGES: a folder with images/, masks/, classes.txt, or a reader."
        ),
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", "-r", help="Folder of the data, if --data is a reader.")
    ] = None,
    to: Annotated[str, typer.Option(metavar="folder|cvat|label-studio", help="Files to write.")] = "folder",
    min_confidence: Annotated[
        float, typer.Option(metavar="P", help="Leave out labels whose softmax probability is below P.")
    ] = 0.0,
    version: Annotated[int | None, typer.Option(help="Version of the run; otherwise the current one.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    as_json: Json = False,
) -> None:
    """Label new images by a model, in files to be corrected: a folder, CVAT or Label Studio.

    Labels that the data has stay; the model labels the other pixels. The corrected files, with a new class in them, are
    new data for 'faircl add-classes'.

    [bold]Examples[/bold]

    faircl suggest runs/street photos/ --out review

    faircl suggest runs/street --data new/vans --out review --min-confidence 0.7

    faircl suggest runs/street photos/ --out review --to cvat

    faircl suggest runs/street photos/ --out review --to label-studio
    """
    done = faircl.suggest_labels(
        run,
        list(images or ()),
        out,
        data=data,
        root=root,
        to=to,
        min_confidence=min_confidence,
        version=version,
        device=device,
    )
    if as_json:
        print_json(done)
    else:
        _show(run, done)


def _show(run: Path, done: dict[str, Any]) -> None:
    output = Output()
    areas = sorted(done["areas"].items(), key=lambda item: -item[1])
    shares = ", ".join(f"{name} {share:.1%}" for name, share in areas) or "no label is left"
    output.text(f"labelled {done['images']} images: {shares}")
    output.text(f"{done['suggested']:.1%} of the pixels by the model, {done['doubtful']:.1%} left out as doubtful")
    read = {"folder": f"--data {done['out']}", "cvat": "--data cvat --root EXPORT"}
    then = read.get(done["to"], f"--data label-studio --root {done['out']}")
    output.text(f"files are in {done['out']}; when they are corrected: faircl add-classes {run} {then}")
