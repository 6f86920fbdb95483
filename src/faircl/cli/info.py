"""``faircl methods``, ``models``, ``recipes`` and ``doctor``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.text import Text

from faircl.cli.output import Format, Json, Output, print_json
from faircl.cli.settings_view import settings_json, settings_table
from faircl.errors import UserError
from faircl.tables import Column, Table, TableFormat

Name = Annotated[str | None, typer.Argument(help="Explain this one's settings: defaults, possible values.")]


def methods(name: Name = None, form: Format = "terminal", as_json: Json = False) -> None:
    """List the methods, or explain one.

    [bold]Examples[/bold]

    faircl methods

    faircl methods faircl
    """
    from faircl.registry import METHODS

    _list(METHODS, name, ("summary", "needs", "paper"), form, as_json)


def models(name: Name = None, form: Format = "terminal", as_json: Json = False) -> None:
    """List the networks, or explain one.

    [bold]Examples[/bold]

    faircl models

    faircl models small --json
    """
    from faircl.registry import MODELS

    _list(MODELS, name, ("summary",), form, as_json)


def recipes(
    name: Annotated[str | None, typer.Argument(help="Show this one: published numbers, settings, command.")] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="List all recipes of this method.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="List all recipes on this data set.")] = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """List the packaged recipes with published numbers, or show one.

    [bold]Examples[/bold]

    faircl recipes

    faircl recipes ade-100-50

    faircl recipes --method plop
    """
    from faircl.cli import recipe_view

    if name is not None and (method or data):
        raise UserError(f"--method and --data choose among recipes; leave them out to see {name}.")
    if as_json:
        print_json(recipe_view.chosen(method, data) if name is None else recipe_view.detail(name))
    elif name is None:
        recipe_view.print_list(Output(form), method, data)
    else:
        recipe_view.print_detail(Output(form), name)


def doctor(as_json: Json = False) -> None:
    """Check the installation: versions, devices, a forward and backward pass.

    [bold]Examples[/bold]

    faircl doctor
    """
    from faircl.engine.doctor import checks

    found = checks()
    if as_json:
        print_json([check._asdict() for check in found])
    else:
        for check in found:
            mark = Text("ok  ", "green") if check.ok else Text("FAIL", "red")
            Output().text(mark, f"{check.name}: {check.found}")
    if not all(check.ok for check in found):
        raise typer.Exit(1)


def _list(table: Any, name: str | None, columns: tuple[str, ...], form: TableFormat, as_json: bool) -> None:
    if name is None:
        rows = []
        for known in table.names():
            try:
                part = table.get(known)
            except UserError as error:  # another package's, and broken: the others are there all the same
                print(f"faircl: {error}", file=sys.stderr)
                continue
            rows.append({"name": known, **{c: _text(part, c) for c in columns}})
        if as_json:
            print_json(rows)
        else:
            Output(form).table(_table(("name", *columns), rows))
        return
    part = table.get(name)
    settings = settings_json(part.Config)
    about: dict[str, Any] = {"name": name, **{c: _text(part, c) for c in columns}, "settings": settings}
    if as_json:
        print_json(about)
        return
    output = Output(form)
    output.text(Text(name, "bold"), about["summary"])
    output.table(settings_table(settings))


def _text(part: Any, column: str) -> str:
    value = getattr(part, column)
    return str(getattr(value, "words", value))  # the needs of a method in words


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    cells = [[None if row[c] is None else str(row[c]) for c in columns] for row in rows]
    return Table([Column(c, wrap=c != "name") for c in columns], cells)
