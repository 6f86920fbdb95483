"""``faircl adopt``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import faircl
from faircl.cli.output import Format, Json, Output, Set, print_json
from faircl.tables import Column, Table


def adopt(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Hugging Face folder of a SegFormer, or a file of weights.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Folder to write the run into.")],
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME,NAME…", help="Names of the network's classes, in its order; otherwise its own."
        ),
    ] = None,
    background: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|none", help="Its background class; otherwise the first class, if that is called background."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", metavar="NAME", help="Kind of labelled images; 'faircl data list' shows them."),
    ] = None,
    root: Annotated[Path | None, typer.Option("--root", "-r", help="Folder of the labelled images.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of images without labels, instead of --data.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="faircl's network that the weights belong to, if they are its.")
    ] = None,
    settings: Set = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Make a network that was trained elsewhere the first step of a run.

    A SegFormer of transformers or a DeepLabV3 of torchvision is compared with its own library before it is written.
    Images, labelled or not, give the features of its classes that adding classes later goes better with.

    [bold]Examples[/bold]

    faircl adopt downloads/segformer-b0 --images /data/photos --out runs/street

    faircl adopt deeplab.pth --classes classes.txt --data folder --root /data/mine --out runs/mine

    faircl adopt deeplab.pth --classes __background__,cat,dog --out runs/pets

    faircl adopt weights.safetensors --model timm --set model.backbone=convnext_tiny --classes sky,road --out runs/own
    """
    run = faircl.adopt(
        source,
        out,
        classes=classes,
        background=background,
        data=data,
        root=root,
        images=images,
        model=model,
        settings=settings,
    )
    about = json.loads((run.folder / "adopted.json").read_text(encoding="utf-8"))
    if as_json:
        print_json({"run": str(run.folder), **about})
        return
    output = Output(form)
    output.table(_classes_table(run, about))
    output.text(f"run: {run.folder}")


def _classes_table(run: faircl.Run, about: dict[str, Any]) -> Table:
    ious = {found.id: found.iou for found in run.final.classes}
    rows = [
        [c["id"], c["name"], c["source_channel"], c["features"], 100 * c["share"], ious[c["id"]]]
        for c in about["classes"]
    ]
    columns = [
        Column("id"),
        Column("class"),
        Column("source's channel"),
        Column("features"),
        Column("share in %", 2),
        Column("IoU in %", 1),
    ]
    return Table(columns, rows, title=f"{about['found']}, adopted", boxed=True)
