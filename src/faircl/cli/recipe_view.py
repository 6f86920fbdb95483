"""What ``faircl recipes`` shows: the list by data set, and one recipe beside the rows of published tables."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from faircl.config.published import Entry, published
from faircl.config.run import RunConfig, load_config, recipe_names, recipe_tree, unknown_recipe
from faircl.errors import UserError, unknown_name
from faircl.registry import METHODS

_MAIN = ("faircl", "finetune", "joint")
"""Methods whose recipes are listed unasked: FairCL and its bounds."""


def summary(name: str) -> dict[str, Any]:
    """Return what the list says of a recipe, as plain values."""
    tree = recipe_tree(name)
    return {
        "name": name,
        "about": tree.get("about", ""),
        "data": tree["data"]["name"],
        "method": tree["method"]["name"],
        "status": tree.get("status"),
        "published": [
            {"table": entry.table.name, "source": entry.table.source, "row": entry.row, "numbers": entry.numbers()}
            for entry in _entries(name)
        ],
    }


def detail(name: str) -> dict[str, Any]:
    """Return what there is to say of one recipe, as plain values: whole tables, settings in short, the command."""
    if name not in recipe_names():
        raise unknown_recipe(name)
    found = summary(name)
    for shown, entry in zip(found["published"], _entries(name), strict=True):
        shown |= {"title": entry.table.title, "rows": {row: entry.table.row(row) for row in entry.table.rows}}
    config = load_config(name)
    root = " --set data.root=DIR" if "root" in type(config.data).model_fields else ""
    return {**found, "settings": _settings(config), "command": f"faircl train {name} --out runs/{name}{root}"}


def chosen(method: str | None = None, data: str | None = None) -> list[dict[str, Any]]:
    """Return what there is to say of all recipes of a method, of a data set, of both, or of all."""
    found = [summary(name) for name in recipe_names()]
    for key, kind, wanted in (("method", "method", method), ("data", "data set", data)):
        known = {row[key] for row in found}
        if wanted is not None and wanted not in known:
            raise unknown_name(f"{kind} among the recipes", wanted, known)
    return [row for row in found if method in (None, row["method"]) and data in (None, row["data"])]


def print_list(console: Console, method: str | None = None, data: str | None = None) -> None:
    """Print recipes grouped by data set: all of a method or a data set, or unasked those of FairCL and its bounds."""
    everything = method is None and data is None
    rows = chosen(method, data)
    if not rows:
        raise UserError(
            f"No recipe of method {method} is on data set {data}; 'faircl recipes --data {data}' shows all."
        )
    others: dict[str, list[str]] = {}
    longest = max(len(row["name"]) for row in rows)
    table = Table(box=None, header_style="bold")
    table.add_column("name", no_wrap=True, min_width=longest)  # it is what one copies
    for column in ("published mIoU", "status", "about"):
        table.add_column(column)
    for group in dict.fromkeys(row["data"] for row in rows):
        table.add_row()
        table.add_row(Text(group, "bold"))
        for row in (row for row in rows if row["data"] == group):
            if everything and row["method"] not in _MAIN:
                others.setdefault(group, []).append(row["method"])
                continue
            entries = _entries(row["name"])
            headline = entries[0].headline() if entries else ""
            status = (row["status"] or "").removesuffix(" here")
            table.add_row(*(Text(cell) for cell in (row["name"], headline, status, row["about"])))
    console.print(table)
    for group, names in others.items():
        ordered = [name for name in METHODS.names() if name in names]
        console.print(Text(f"other methods on {group}: {', '.join(ordered)}"), soft_wrap=True)
    if others:
        console.print(Text("faircl recipes --method plop  # or --data voc: their recipes"), soft_wrap=True)


def print_detail(console: Console, name: str) -> None:
    """Print one recipe: its own words, published rows, settings in short and the command that runs it."""
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
    settings = {
        "data": f"{data.name}, trained on {data.train}, tested on {data.test}",
        "scenario": f"task {scenario.task}, {what}",
        "model": _words(config.model),
        "method": _words(config.method),
        "optim": f"{optim.name}, lr {optim.lr:g}, later {later_lr:g}, {optim.schedule}",
        "train": f"{train.epochs:g} epochs, later {later_epochs:g}; batch {train.batch}, crop {train.crop}, "
        f"{train.precision}",
        "eval": f"convention {config.eval.convention}",
    }
    if config.memory.images:
        settings["memory"] = f"{config.memory.images} images, {config.memory.share:g} of every later batch"
    return settings


def _words(part: BaseModel) -> str:
    """Return a part's name and the settings that a recipe gave it; those of a part inside it in brackets."""
    given = {key: getattr(part, key) for key in sorted(part.model_fields_set, key=list(type(part).model_fields).index)}
    name = str(given.pop("name"))
    words = (f"({_words(value)})" if isinstance(value, BaseModel) else value for value in given.values())
    return ", ".join([name, *(f"{key} {word}" for key, word in zip(given, words, strict=True))])
