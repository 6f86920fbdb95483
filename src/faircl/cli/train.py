"""``faircl train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faircl.cli.output import Fit, Json, Set, console, fitted, print_json


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see 'faircl recipes') or a YAML file.")],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Folder to write the run into.")],
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run; the same as --set seed=N.")] = None,
    fit: Fit = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run at its first unfinished step.")] = False,
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
    from faircl.config.run import load_config
    from faircl.distributed import init_process_group, rank
    from faircl.engine.trainer import train as train_run
    from faircl.progress import ConsoleReporter

    init_process_group()
    overrides = [*(settings or ()), *([] if seed is None else [f"seed={seed}"])]
    config = fitted(load_config(recipe, overrides), fit)
    folder = train_run(config, out, ConsoleReporter(), resume)
    if rank() > 0:
        return
    if as_json:
        print_json({"runs": [run_json(folder)]})
    else:
        console().print(steps_table(folder))
        print(f"report: {folder.path / 'report.html'}")
