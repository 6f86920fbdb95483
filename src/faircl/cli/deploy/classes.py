"""``faircl classes``: list, rename, merge and drop the classes of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import faircl
from faircl.cli.names import comma_list
from faircl.cli.output import Format, Json, Output, print_json
from faircl.errors import UserError
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.runs.versions import Version

app = typer.Typer(help="List, rename, merge and drop the classes of a model, without training.", no_args_is_help=True)
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Copy the run there first; otherwise it gets a version more.")
]


@app.command("list")
def list_classes(run: RunArgument, form: Format = "terminal", as_json: Json = False) -> None:
    """List the classes that a model knows: id, name, colour, the version and step that learned it, pixels trained on.

    [bold]Examples[/bold]

    faircl classes list runs/street
    """
    from faircl.api.colours import class_colours
    from faircl.deploy.editing.class_list import known_classes
    from faircl.runs.versions import VersionChain

    chain = VersionChain.open(run)
    scenario, found = known_classes(chain)
    colours = [f"#{bytes(colour).hex()}" for colour in class_colours(scenario.classes, scenario.colours)]
    if as_json:
        listing = [{**vars(one), "colour": colours[one.id]} for one in found]
        print_json({"version": chain.current(), "classes": listing})
        return
    columns = [Column(name, wrap=False) for name in ("id", "name", "colour", "version", "step", "pixels")]
    rows: list[list[str | int]] = [
        [one.id, one.name, colours[one.id], one.version, one.step, one.pixels] for one in found
    ]
    Output(form).table(Table(columns, rows))


@app.command("rename")
def rename(
    run: RunArgument,
    names: Annotated[list[str], typer.Argument(metavar="OLD=NEW...", help="Classes and their new names.")],
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Give classes other names; ids and predictions stay.

    [bold]Examples[/bold]

    faircl classes rename runs/street car=vehicle tree=plant
    """
    pairs: dict[str, str] = {}
    for text in names:
        old, equals, new = text.partition("=")
        if not equals:
            raise UserError(f"'{text}' is not of the form OLD=NEW; give a class and its new name, as in car=vehicle.")
        if old in pairs:
            raise UserError(f"Class '{old}' is to have two names, '{pairs[old]}' and '{new}'; give one.")
        pairs[old] = new
    _show(faircl.rename_classes(run, pairs, out), out or run, as_json)


@app.command("merge")
def merge(
    run: RunArgument,
    names: Annotated[str, typer.Argument(metavar="NAME,NAME...", help="Classes to merge, two or more.")],
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="What the merged class is called.")],
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Make one class of several; its probability is the sum of theirs.

    It keeps the id of the class that is called so already, or else of the first one; merged with the background it is
    the background.

    [bold]Examples[/bold]

    faircl classes merge runs/street car,van --into vehicle

    faircl classes merge runs/street car,van --into car --out runs/street-2
    """
    _show(faircl.merge_classes(run, comma_list(names), into, out), out or run, as_json)


@app.command("drop")
def drop(
    run: RunArgument,
    names: Annotated[str, typer.Argument(metavar="NAME,NAME...", help="Classes to drop.")],
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Take classes away; a pixel of theirs goes to the next likeliest class.

    [bold]Examples[/bold]

    faircl classes drop runs/street fence,pole
    """
    _show(faircl.drop_classes(run, comma_list(names), out), out or run, as_json)


def _show(version: Version, run: Path, as_json: bool) -> None:
    from faircl.cli.deploy.versions import show_version

    if as_json:
        print_json(version.to_json())
    else:
        show_version(Output(), run, version)
