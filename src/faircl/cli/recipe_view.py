"""What ``faircl recipes`` shows: the list by data set, and one recipe beside the rows of the paper's tables."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from faircl.config import RunConfig, load_config, recipe_names, recipe_tree
from faircl.errors import unknown_name
from faircl.published import Entry, published


def summary(name: str) -> dict[str, Any]:
    """Return what the list says of a recipe, as plain values."""
    tree = recipe_tree(name)
    return {
        "name": name,
        "about": tree.get("about", ""),
        "data": tree["data"]["name"],
        "status": tree.get("status"),
        "published": [
            {"table": entry.table.name, "source": entry.table.source, "row": entry.row, "numbers": entry.numbers()}
            for entry in _entries(name)
        ],
    }


def detail(name: str) -> dict[str, Any]:
    """Return what there is to say of one recipe, as plain values: whole tables, settings in short, the command."""
    if name not in recipe_names():
        raise unknown_name("recipe", name, recipe_names())
    found = summary(name)
    for shown, entry in zip(found["published"], _entries(name), strict=True):
        shown |= {"title": entry.table.title, "rows": {row: entry.table.row(row) for row in entry.table.rows}}
    config = load_config(name)
    root = " --set data.root=DIR" if "root" in type(config.data).model_fields else ""
    return {**found, "settings": _settings(config), "command": f"faircl train {name} --out runs/{name}{root}"}


def print_list(console: Console) -> None:
    """Print all recipes, grouped by data set."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in map(summary, recipe_names()):
        groups.setdefault(row["data"], []).append(row)
    table = Table("name", "published mIoU", "status", "about", box=None, header_style="bold")
    for data, rows in groups.items():
        table.add_row()
        table.add_row(Text(data, "bold"))
        for row in rows:
            entries = _entries(row["name"])
            headline = entries[0].headline() if entries else ""
            table.add_row(*(Text(cell) for cell in (row["name"], headline, row["status"] or "", row["about"])))
    console.print(table)


def print_detail(console: Console, name: str) -> None:
    """Print one recipe: its own words, the paper's rows, settings in short and the command that runs it."""
    found = detail(name)
    console.print(Text(name, "bold"), Text(found["about"]), soft_wrap=True)
    if found["status"]:
        console.print(Text(f"status: {found['status']}"), soft_wrap=True)
    for entry in _entries(name):
        console.print(Text(f"\n{entry.table.source}: {entry.table.title}"), soft_wrap=True)
        console.print(_rows(entry))
    settings = Table(box=None, show_header=False)
    for key, words in found["settings"].items():
        settings.add_row(key, Text(words))
    console.print("")
    console.print(settings)
    console.print(Text(f"\n{found['command']}\nfaircl config show {name}  # every setting"), soft_wrap=True)


def _entries(name: str) -> tuple[Entry, ...]:
    found = published(name)
    return () if found is None else found.entries


def _rows(entry: Entry) -> Table:
    """Return the entry's whole table, its own row marked."""
    table = Table("", "in percent", box=None, header_style="bold")
    for column in entry.table.columns:
        table.add_column(column, justify="right")
    for row, values in entry.table.rows.items():
        own = row == entry.row
        cells = ("→" if own else "", row, *(entry.table.text(value) for value in values))
        table.add_row(*(Text(cell, "bold" if own else "") for cell in cells))
    return table


def _settings(config: RunConfig) -> dict[str, str]:
    """Return what tells one recipe from another, in words."""
    data, scenario, optim, train = config.data, config.scenario, config.optim, config.train
    later_lr = optim.lr if optim.later_lr is None else optim.later_lr
    later_epochs = train.epochs if train.later_epochs is None else train.later_epochs
    what = scenario.setting if scenario.protocol is None else f"protocol {scenario.protocol}"
    if scenario.protocol == "plop":
        what += " (tests on training images: see 'faircl scenario show')"
    return {
        "data": f"{data.name}, trained on {data.train}, tested on {data.test}",
        "scenario": f"task {scenario.task}, {what}",
        "model": _words(config.model),
        "method": _words(config.method),
        "optim": f"{optim.name}, lr {optim.lr:g}, later {later_lr:g}, {optim.schedule}",
        "train": f"{train.epochs:g} epochs, later {later_epochs:g}; batch {train.batch}, crop {train.crop}, "
        f"{train.precision}",
        "eval": f"convention {config.eval.convention}",
    }


def _words(part: BaseModel) -> str:
    """Return a part's name and the settings that a recipe gave it."""
    given = part.model_dump(exclude_unset=True)
    return ", ".join([given.pop("name"), *(f"{key} {value}" for key, value in given.items())])
