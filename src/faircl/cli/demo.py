"""``faircl demo``: the main job on built-in data, in a few minutes on two CPU cores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import faircl
from faircl.cli.output import Format, Json, Output, Set, print_json
from faircl.cli.stopping import stoppable
from faircl.cli.train_options import with_options
from faircl.errors import UserError
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.config.run import RunConfig
    from faircl.runs.run import Run

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
    form: Format = "terminal",
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
    from faircl.engine.runtime import rank_zero_reporter
    from faircl.progress import ConsoleReporter
    from faircl.report.sheet import write_comparison_picture
    from faircl.runs.begun import is_begun
    from faircl.runs.folder import RunFolder

    init_process_group()
    reporter = rank_zero_reporter(ConsoleReporter())
    overrides = with_options({"--seed": ("seed", seed)}, settings or ())
    # All settings are read before the first run starts: a mistake in the last one should not cost the others.
    configs = [(label, recipe, _config(recipe, overrides)) for label, recipe in RUNS]
    seed = configs[0][2].seed
    out = out or Path(f"runs/demo-{seed}")
    trained: list[Run] = []
    for label, recipe, config in configs:
        reporter.say(f"[{len(trained) + 1}/{len(RUNS)}] {label}")
        with stoppable():
            begun = is_begun(out / recipe)
            trained.append(faircl.train(config, out / recipe, resume=begun, reporter=reporter))
    if rank() > 0:
        return
    made = faircl.compare(trained, [label for label, _, _ in configs], out)
    write_comparison_picture(out / "comparison.png", [(label, run.folder) for label, run in made.runs])
    runs = [(label, RunFolder(run.folder)) for label, run in made.runs]
    if as_json:
        print_json({"runs": [{"name": label, **run_json(folder)} for label, folder in runs], "page": str(made.page)})
    else:
        output = Output(form)
        output.table(_table([(label, folder.records("eval")) for label, folder in runs], seed))
        for sentence in made.summary:
            output.text(sentence)
        output.text(f"pictures and all classes: {made.page}")


def _config(recipe: str, overrides: list[str]) -> RunConfig:
    """Read a recipe; a setting that does not fit it is an error that names the recipe."""
    try:
        return faircl.load_config(recipe, overrides)
    except UserError as error:
        raise UserError(f"The demo's recipe {recipe}: {error}") from None


def _table(runs: list[tuple[str, list[dict[str, Any]]]], seed: int) -> Table:
    from faircl.cli.results import WORST, caption_of, worst

    columns = [Column("method"), *(Column(name, 1) for name in ("old", "new", "all", "STD", "rarest third"))]
    columns += [*WORST, Column("images/s", 0)]
    rows = []
    for label, steps in runs:
        last = steps[-1]
        images = sum(step["images_per_second"] * step["seconds"] for step in steps)
        speed = images / sum(step["seconds"] for step in steps)
        rows.append([label, *last["miou"].values(), last["std"], last["rarest_third"], *worst(last), speed])
    caption = caption_of([steps[-1] for _, steps in runs])
    return Table(columns, rows, title=f"after the last step, seed {seed}", caption=caption, boxed=True)
