"""``faircl train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import faircl
from faircl.cli.output import Fit, Format, Json, Output, Set, fitted, print_json
from faircl.cli.stopping import stoppable


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see 'faircl recipes') or a YAML file.")],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Folder to write the run into.")],
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run; the same as --set seed=N.")] = None,
    fit: Fit = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run at its first unfinished step.")] = False,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Train all steps of a recipe, evaluating after each.

    [bold]Examples[/bold]

    faircl train demo --out runs/first

    faircl train demo --out runs/unfair --set method.lambda_class=0

    faircl train folder --out runs/mine --set data.root=/data/mine --set scenario.task=6-5

    faircl train my.yaml --out runs/yaml --resume

    faircl train folder-deeplab --out runs/mine --set data.root=/data/mine --fit 12gb

    torchrun --nproc-per-node 4 -m faircl train my.yaml --out runs/four
    """
    from faircl.cli.results import run_json, steps_table
    from faircl.distributed import init_process_group, rank
    from faircl.runs.folder import RunFolder

    init_process_group()
    overrides = [*(settings or ()), *([] if seed is None else [f"seed={seed}"])]
    config = fitted(faircl.load_config(recipe, overrides), fit)
    with stoppable():
        run = faircl.train(config, out, resume=resume)
    if rank() > 0:
        return
    folder = RunFolder(run.folder)
    if as_json:
        print_json({"runs": [run_json(folder)]})
    else:
        output = Output(form)
        output.table(steps_table(folder))
        output.text(f"report: {folder.path / 'report.html'}")
