"""``faircl export``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import faircl
from faircl.cli.output import Json, Output, print_json
from faircl.errors import UserError


def export(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run, or of an earlier export to huggingface.")
    ],
    to: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="onnx, torch or huggingface.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            readable=False,
            help="A new .onnx or .pt2 file, or a new folder for huggingface.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[int, typer.Option(help="The step whose network is exported; -1 is the last finished one.")] = -1,
    version: Annotated[
        int | None, typer.Option("--version", help="This version of the run; otherwise the newest accepted one.")
    ] = None,
    opset: Annotated[
        int | None, typer.Option(help="ONNX's version of operators; otherwise torch's choice.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a trained network for use elsewhere: ONNX, torch.export, or a Hugging Face folder.

    What was written is run and compared with the network; it is kept if the masks agree on 99.99 % of pixels.

    [bold]Examples[/bold]

    faircl export runs/first --to onnx --out first.onnx

    faircl export runs/first --to torch --out first.pt2 --step 0

    faircl export runs/first --to huggingface --out first-hf
    """
    if to is None:
        raise UserError("Say which format to export to, with --to onnx, --to torch or --to huggingface.")
    if out is None:
        raise UserError("Say where to write the exported network, with --out PATH.")
    done = faircl.export(run, to, out, step, opset=opset, version=version)
    if as_json:
        print_json({**asdict(done), "path": str(done.path)})
        return
    output = Output()
    output.text(f"wrote {done.path}: step {done.step}, {len(done.classes)} classes")
    output.text(f"same class as the model on {done.agreement:.4%} of {done.pixels:,} pixels")
    if done.note:
        output.text(f"note: {done.note}")
