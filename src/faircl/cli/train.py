"""``faircl train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import faircl
from faircl.cli import train_options as options
from faircl.cli.output import Fit, Format, Json, Output, Set, fitted, print_json
from faircl.cli.stopping import stoppable
from faircl.errors import UserError


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE|RUN",
            help="A recipe's name (see 'faircl recipes') or a YAML file; with --resume and no --out the run's folder.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", readable=False, help="Folder to write the run into.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run with the settings it was begun with.")
    ] = False,
    root: options.Root = None,
    task: options.Task = None,
    method: options.Method = None,
    model: options.Model = None,
    epochs: options.Epochs = None,
    batch: options.Batch = None,
    lr: options.Lr = None,
    device: options.Device = None,
    workers: options.Workers = None,
    seed: options.Seed = None,
    logger: options.Logger = None,
    settings: Set = None,
    fit: Fit = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Train all steps of a recipe, evaluating after each, or continue a run.

    [bold]Examples[/bold]

    faircl train demo --out runs/first

    faircl train folder --root /data/mine --task 6-5 --out runs/mine

    faircl train --resume runs/mine

    faircl train folder --root /data/mine --task 6-5 --method mib --epochs 30 --device cpu --out runs/mib

    faircl train demo --out runs/unfair --set method.lambda_class=0 --set method.lambda_iou=0

    faircl train folder-deeplab --root /data/mine --task 6-5 --out runs/deeplab --fit 12gb

    torchrun --nproc-per-node 4 -m faircl train my.yaml --out runs/four
    """
    recipe, out = _recipe_and_folder(recipe, out, resume)
    given = {
        "--root": ("data.root", root),
        "--task": ("scenario.task", task),
        "--method": ("method.name", method),
        "--model": ("model.name", model),
        "--epochs": ("train.epochs", epochs),
        "--batch": ("train.batch", batch),
        "--lr": ("optim.lr", lr),
        "--device": ("train.accelerator", device),
        "--workers": ("train.workers", workers),
        "--seed": ("seed", seed),
        "--logger": ("train.loggers", logger or None),
    }
    overrides = options.with_options(given, settings or ())
    with stoppable():
        if fit is not None:
            config = fitted(faircl.load_config(recipe or out / "config.yaml", overrides), fit)
            run = faircl.train(config, out, resume=resume)
        elif recipe is None:
            run = faircl.resume(out, overrides)
        else:
            run = faircl.train(recipe, out, overrides, resume=resume)

    from faircl.cli.results import run_json, steps_table
    from faircl.distributed import rank
    from faircl.runs.folder import RunFolder

    if rank() > 0:
        return
    folder = RunFolder(run.folder)
    if as_json:
        print_json({"runs": [run_json(folder)]})
    else:
        output = Output(form)
        output.table(steps_table(folder))
        output.text(f"report: {folder.path / 'report.html'}")


def _recipe_and_folder(recipe: str | None, out: Path | None, resume: bool) -> tuple[str | None, Path]:
    """Return the recipe, None for that of the run to continue, and the folder of the run."""
    if resume and out is None:
        if recipe is None:
            raise UserError("No run to continue is given; name its folder, as in: faircl train --resume runs/mine.")
        return None, Path(recipe)
    if recipe is None and not resume:
        raise UserError("No recipe is given; name a YAML file or a recipe ('faircl recipes' lists them).")
    if out is None:
        raise UserError("No folder for the run is given; add --out, as in --out runs/mine.")
    return recipe, out
