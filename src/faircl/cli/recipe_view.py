"""Tables and texts of ``faircl recipes``: the list by data set, and one recipe beside the published tables."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from rich.text import Text

from faircl.cli.output import Output
from faircl.config.published import Entry, published
from faircl.config.recipes import recipe_names, recipe_tree, unknown_recipe
from faircl.config.run import RunConfig, load_config
from faircl.errors import UserError, unknown_name
from faircl.registry import METHODS, is_joint
from faircl.tables import Column, Styled, Table

_MAIN = ("faircl", "faircl-paper", "finetune", "joint")
"""Methods whose recipes are listed by default: FairCL and its two references."""


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
    root = " --root DIR" if "root" in type(config.data).model_fields else ""
    task = " --task TASK" if config.scenario.task is None and not is_joint(config.method.name) else ""
    return {**found, "settings": _settings(config), "command": f"faircl train {name}{root}{task} --out runs/{name}"}


def chosen(method: str | None = None, data: str | None = None) -> list[dict[str, Any]]:
    """Return what there is to say of all recipes of a method, of a data set, of both, or of all."""
    found = [summary(name) for name in recipe_names()]
    for key, kind, wanted in (("method", "method", method), ("data", "data set", data)):
        known = {row[key] for row in found}
        if wanted is not None and wanted not in known:
            raise unknown_name(f"{kind} among the recipes", wanted, known)
    return [row for row in found if method in (None, row["method"]) and data in (None, row["data"])]


def print_list(output: Output, method: str | None = None, data: str | None = None) -> None:
    """Print recipes grouped by data set: of a method or a data set, by default of FairCL and its references."""
    everything = method is None and data is None
    found = chosen(method, data)
    if not found:
        raise UserError(
            f"No recipe of method {method} is on data set {data}; 'faircl recipes --data {data}' shows all."
        )
    rows, others = [], dict[str, list[str]]()
    groups = list(dict.fromkeys(row["data"] for row in found))
    for row in sorted(found, key=lambda row: groups.index(row["data"])):
        if everything and row["method"] not in _MAIN:
            others.setdefault(row["data"], []).append(row["method"])
            continue
        entries = _entries(row["name"])
        headline = entries[0].headline() if entries else None
        status = row["status"] and row["status"].removesuffix(" here")
        rows.append([row["data"], row["name"], headline, status, row["about"]])
    columns = [Column("data"), Column("name", wrap=False)]
    columns += [Column(name) for name in ("published mIoU", "status", "about")]
    output.table(Table(columns, rows, grouped=True))
    for group, names in others.items():
        ordered = [name for name in METHODS.names() if name in names]
        output.text(f"other methods on {group}: {', '.join(ordered)}")
    if others:
        output.text("faircl recipes --method plop  # or --data voc: their recipes")


def print_detail(output: Output, name: str) -> None:
    """Print one recipe: what it is, published rows, settings in short and the command that runs it."""
    found = detail(name)
    output.text(Text(name, "bold"), found["about"])
    if found["status"]:
        output.text(f"status: {found['status']}")
    output.text("")
    for entry in _entries(name):
        output.table(_rows(entry))
    output.table(Table([Column("setting"), Column("value")], [list(pair) for pair in found["settings"].items()]))
    output.text(f"\n{found['command']}\nfaircl config show {name}  # every setting")


def _entries(name: str) -> tuple[Entry, ...]:
    found = published(name)
    return () if found is None else found.entries


def _rows(entry: Entry) -> Table:
    """Return the entry's whole table, its own row marked."""
    published = entry.table
    columns = [Column(""), Column("in percent"), *(Column(name, published.decimals) for name in published.columns)]
    rows = []
    for name, values in published.rows.items():
        own = name == entry.row
        rows.append([Styled(value, "bold" if own else "") for value in ("→" if own else "", name, *values)])
    return Table(columns, rows, title=f"{published.source}: {published.title}")


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
        "scenario": f"task {scenario.task or 'of your choice'}, {what}",
        "model": _words(config.model),
        "method": _words(config.method),
        "optim": f"{optim.name}, lr {optim.lr:g}, later {later_lr:g}, {optim.schedule}",
        "train": f"{train.epochs:g} epochs, later {later_epochs:g}; batch {train.batch}, crop {train.crop}, "
        f"{train.precision}",
        "eval": f"convention {config.eval.convention}",
    }
    if config.memory.images:
        labels = "all labels so far" if config.memory.labels == "all" else "labels of their steps"
        settings["memory"] = f"{config.memory.images} images, {config.memory.share:g} of every later batch, {labels}"
    return settings


def _words(part: BaseModel) -> str:
    """Return a part's name and the settings that a recipe gave it; those of a part inside it in brackets."""
    given = {key: getattr(part, key) for key in sorted(part.model_fields_set, key=list(type(part).model_fields).index)}
    name = str(given.pop("name"))
    words = (f"({_words(value)})" if isinstance(value, BaseModel) else value for value in given.values())
    return ", ".join([name, *(f"{key} {word}" for key, word in zip(given, words, strict=True))])
