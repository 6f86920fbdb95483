"""``faircl demo``: the main job on built-in data, in a few minutes on two CPU cores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faircl.cli.output import Json, Set, console, print_json
from faircl.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from faircl.config.run import RunConfig
    from faircl.runs.folder import RunFolder

RUNS = (
    ("fine-tune", "demo-finetune"),
    ("FairCL", "demo"),
    ("FairCL without fairness", "demo-unfair"),
    ("joint", "demo-joint"),
)


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", readable=False, help="Folder for the runs; by default runs/demo-SEED.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the runs, 0 by default; the scenes stay the same.")
    ] = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Watch a network learn street scenes in two steps: fine-tuning forgets, FairCL does not.

    Trains four runs and closes with one table. Runs that are finished are read, not trained again.

    [bold]Examples[/bold]

    faircl demo

    faircl demo --seed 1

    faircl demo --json > demo.json
    """
    from faircl.cli.results import run_json
    from faircl.distributed import init_process_group, rank
    from faircl.engine.runtime import only_first
    from faircl.engine.trainer import train
    from faircl.progress import ConsoleReporter
    from faircl.report.page import write_comparison_page
    from faircl.report.sheet import write_comparison_picture

    init_process_group()
    reporter = only_first(ConsoleReporter())
    overrides = [*(settings or ()), *([] if seed is None else [f"seed={seed}"])]
    # All settings are read before the first run starts: a mistake in the last one should not cost the others.
    configs = [(label, recipe, _config(recipe, overrides)) for label, recipe in RUNS]
    seed = configs[0][2].seed
    out = out or Path(f"runs/demo-{seed}")
    runs: list[tuple[str, RunFolder]] = []
    for label, recipe, config in configs:
        reporter.say(f"[{len(runs) + 1}/{len(RUNS)}] {label}")
        runs.append((label, train(config, out / recipe, reporter, resume=True)))
    if rank() > 0:
        return
    paths = [(label, folder.path) for label, folder in runs]
    page = write_comparison_page(out, paths)
    write_comparison_picture(out / "comparison.png", paths)
    if as_json:
        print_json({"runs": [{"name": label, **run_json(folder)} for label, folder in runs], "page": str(page)})
    else:
        console().print(_table([(label, folder.records("eval")) for label, folder in runs], seed))
        print(f"pictures and all classes: {page}")


def _config(recipe: str, overrides: list[str]) -> RunConfig:
    """Read a recipe; a setting that does not fit it is an error that names the recipe."""
    from faircl.config.run import load_config

    try:
        return load_config(recipe, overrides)
    except UserError as error:
        raise UserError(f"The demo's recipe {recipe}: {error}") from None


def _table(runs: list[tuple[str, list[dict[str, Any]]]], seed: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    from faircl.cli.results import show, worst

    columns = ("method", "old", "new", "all", "STD", "rarest third", "worst class", "images/s")
    by = ", ".join(dict.fromkeys(steps[-1]["convention"] for _, steps in runs))
    caption = f"IoU in percent, convention {by}"
    table = Table(*columns, title=f"after the last step, seed {seed}", caption=caption, header_style="bold")
    for label, steps in runs:
        last = steps[-1]
        images = sum(step["images_per_second"] * step["seconds"] for step in steps)
        speed = images / sum(step["seconds"] for step in steps)
        numbers = (*last["miou"].values(), last["std"], last["rarest_third"])
        table.add_row(label, *map(show, numbers), Text(worst(last)), f"{speed:.0f}")
    return table
