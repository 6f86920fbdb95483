"""The tables of docs/recipes.md, from the recipes themselves; run this file to print them."""

from __future__ import annotations

from faircl.config.published import published
from faircl.config.recipes import recipe_names, recipe_tree
from faircl.registry import METHODS

DATA = {"ade": "ADE20K", "cityscapes": "Cityscapes", "voc": "Pascal VOC"}
TASKS = {"ade": ("100-50", "50-50", "100-10", "100-5"), "cityscapes": ("11-5", "11-1", "1-1"), "voc": ("15-1", "10-1")}
OWN = ("faircl-paper", "joint")


def page_tables() -> str:
    """Return one section per data set: the recipes of FairCL's rows, the first row, and all the tables."""
    return "\n".join(_section(data, title) for data, title in DATA.items())


def method_tables() -> str:
    """Return one table per data set: other methods by task, mIoU over all classes and who prints it if not the paper.

    A recipe without a number is a dash, a task without a recipe an empty cell.
    """
    return "\n".join(_methods(data, title) for data, title in DATA.items())


def _section(data: str, title: str) -> str:
    lines = [f"### {title}", "", "| recipe | what | published mIoU | tables |", "|---|---|---|---|"]
    for name in recipe_names():
        tree = recipe_tree(name)
        if tree["data"]["name"] == data and tree["method"]["name"] in OWN:
            lines.append(f"| `{name}` | {tree['about'].rstrip('.')} | {' | '.join(_numbers(name))} |")
    return "\n".join([*lines, ""])


def _numbers(name: str) -> tuple[str, str]:
    found = published(name)
    if found is None:
        return "none", ""
    table, numbers = found.entries[0].table, found.entries[0].numbers()
    cells = []
    for column, value in numbers.items():
        if value is not None and not column.endswith(" STD"):
            std = f" ({table.text(numbers[f'{column} STD'])})" if f"{column} STD" in numbers else ""
            cells.append(f"{column} {table.text(value)}{std}")
    sources = sorted({entry.table.source.split()[1] for entry in found.entries})
    return ", ".join(cells), ", ".join(sources)


def _methods(data: str, title: str) -> str:
    heads = [f"`{data}-{task}-…`" for task in TASKS[data]]
    lines = [f"| {title} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for method in METHODS.names():
        names = [f"{data}-{task}-{method}" for task in TASKS[data]]
        if any(name in recipe_names() for name in names):
            lines.append(f"| `{method}` | {' | '.join(map(_cell, names))} |")
    return "\n".join([*lines, ""])


def _cell(name: str) -> str:
    if name not in recipe_names():
        return ""
    found = published(name)
    if found is None:
        return "–"
    table, number = found.entries[0].table, found.entries[0].numbers()["all"]
    return table.text(number) + ("" if table.paper else f" ({table.source.partition(chr(39))[0]})")


if __name__ == "__main__":
    print(page_tables(), method_tables(), sep="\n", end="")
