"""``faircl versions``: what a model has become since it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import faircl
from faircl.cli.output import Format, Json, Output, print_json
from faircl.errors import UserError
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.runs.versions import Version

app = typer.Typer(help="List, show and undo the versions of a model.", no_args_is_help=True)
RunFolderArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]


@app.command("list")
def list_versions(run: RunFolderArgument, form: Format = "terminal", as_json: Json = False) -> None:
    """List the versions of a run, the current one marked.

    [bold]Examples[/bold]

    faircl versions list runs/street
    """
    from faircl.runs.versions import VersionChain

    found, chain = faircl.versions(run), VersionChain.open(run)
    current, unfinished = chain.current(), chain.unfinished()
    if as_json:
        print_json({"current": current, "unfinished": unfinished, "versions": [one.to_json() for one in found]})
        return
    columns = [Column(name, wrap=False) for name in ("version", "parent", "status", "what", "made")]
    columns += [Column("old classes lost", 1), Column("agreement", 1)]
    rows: list[list[str | int | float | None]] = [
        [_marked(0, current), "", "", "as trained or adopted", "", None, None]
    ]
    for one in found:
        rows.append([_marked(one.number, current), one.parent, one.status, one.what, one.made, one.drop, one.agreement])
    if unfinished is not None:
        rows.append([str(unfinished), "", "unfinished", "", "", None, None])
    Output(form).table(Table(columns, rows))


@app.command("show")
def show(
    run: RunFolderArgument,
    number: Annotated[int | None, typer.Argument(metavar="VERSION", help="By default the current one.")] = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Show where a version comes from, and what each class gained or lost by it.

    [bold]Examples[/bold]

    faircl versions show runs/street

    faircl versions show runs/street 2 --json
    """
    from faircl.runs.versions import VersionChain

    found = {one.number: one for one in faircl.versions(run)}
    wanted = VersionChain.open(run).current() if number is None else number
    if wanted == 0:
        raise UserError(f"Version 0 of {run} is the run itself, as it was trained or adopted; see {run}/report.html.")
    if wanted not in found:
        known = f"it has: {', '.join(map(str, found))}" if found else "it is as it was trained or adopted"
        raise UserError(f"{run} has no version {wanted} beside version 0; {known}.")
    if as_json:
        print_json(found[wanted].to_json())
    else:
        show_version(Output(form), run, found[wanted])


@app.command("undo")
def undo(run: RunFolderArgument, as_json: Json = False) -> None:
    """Remove the newest version, finished or not; everything else is as it was before.

    [bold]Examples[/bold]

    faircl versions undo runs/street
    """
    from faircl.runs.versions import VersionChain

    removed = faircl.undo(run)
    current = VersionChain.open(run).current()
    if as_json:
        print_json({"removed": removed, "current": current})
    else:
        Output().text(f"version {removed} is removed; version {current} is in use")


def show_version(output: Output, run: Path, version: Version) -> None:
    """Print a version: its classes, its origin and its status."""
    from faircl.deploy.adding.verdict import changes_table, summary

    if version.changes:
        output.table(changes_table(version.changes))
        output.text(summary(version))
    source = f" from {version.data['images']} images of {version.data['root']}" if version.data else ""
    output.text(f"version {version.number} of {run}, made of version {version.parent}: {version.what}{source}")
    verdict = f"rejected: {version.reason}; version {version.parent} stays in use" if version.reason else version.status
    output.text(f"{verdict}; {version.made}, faircl {version.code}, weights {version.model_sha256[:12]}")


def _marked(number: int, current: int) -> str:
    return f"{number} (current)" if number == current else str(number)
