"""``faircl eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import faircl
from faircl.cli.output import Format, Json, Output, print_json


def evaluate(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders written by 'faircl train'.")],
    step: Annotated[int | None, typer.Option(help="Only this step, -1 the last; otherwise all.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Where the data folder is now, if it has moved; the folder of a reader --data.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="Evaluate on other test images: a folder, or a reader with its --root."),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="With --data, this version; otherwise the one in use.")
    ] = None,
    convention: Annotated[
        str | None, typer.Option(help="Score by full, plop or mib; otherwise as the run did.", show_default=False)
    ] = None,
    images: Annotated[
        str | None, typer.Option(help="Evaluate the test or the validation images; otherwise as the run did.")
    ] = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Evaluate the saved models of one or more runs again, as it was evaluated or by another convention.

    [bold]Examples[/bold]

    faircl eval runs/first

    faircl eval runs/first --step 1 --json

    faircl eval runs/a runs/b --root /data/moved

    faircl eval runs/first --convention plop

    faircl eval runs/chosen --images test

    faircl eval runs/street --data checked/ --version 2
    """
    from faircl.api.opening import run_folder, version_folder
    from faircl.cli.results import evaluated_json, steps_table_of
    from faircl.distributed import init_process_group, rank

    init_process_group()
    # A mistake in the last one should not cost the others.
    folders = [run_folder(run) if data is None else version_folder(run, version) for run in runs]
    results = [
        (folder, faircl.evaluate(run, step, root, convention, images, data=data, version=version))
        for run, folder in zip(runs, folders, strict=True)
    ]
    if rank() > 0:
        return
    if as_json:
        print_json({"runs": [evaluated_json(folder, steps) for folder, steps in results]})
        return
    output = Output(form)
    for folder, steps in results:
        output.table(steps_table_of(folder, [metrics.to_json() for metrics in steps]))
