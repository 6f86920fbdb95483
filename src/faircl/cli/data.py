"""``faircl data``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faircl.cli.output import Json, print_json

app = typer.Typer(help="Make and look at data.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Make and look at data."""


@app.command()
def synth(
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Folder to write the data set into.")],
    images: Annotated[int, typer.Option(help="Training images.")] = 240,
    test_images: Annotated[int, typer.Option(help="Test images.")] = 80,
    size: Annotated[int, typer.Option(help="Side of an image in pixels.")] = 96,
    seed: Annotated[int, typer.Option(help="Seed of the scenes.")] = 0,
    as_json: Json = False,
) -> None:
    """Write the built-in street scenes as a folder data set: images/, masks/ and classes.txt.

    [bold]Examples[/bold]

    faircl data synth --out data/street

    faircl data synth --out data/small --images 40 --test-images 10 --size 64 --seed 7
    """
    from faircl.data.scenes import SceneData
    from faircl.data.write import write_folder
    from faircl.progress import ConsoleReporter

    scenes = SceneData(images, test_images, size, seed)
    counts = write_folder(scenes, ("train", "test"), out, ConsoleReporter())
    if as_json:
        print_json({"root": str(out), "images": counts, "classes": list(scenes.classes.names)})
    else:
        print(f"wrote {counts['train']} training and {counts['test']} test images to {out}")
