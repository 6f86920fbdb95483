"""The tables of docs/recipes.md, from the recipes themselves; run this file to print them."""

from __future__ import annotations

from faircl.config import recipe_names, recipe_tree
from faircl.published import published

DATA = {"ade": "ADE20K", "cityscapes": "Cityscapes", "voc": "Pascal VOC"}


def page_tables() -> str:
    """Return one section per data set: its recipes, the row of the first table they are in, and all those tables."""
    return "\n".join(_section(data, title) for data, title in DATA.items())


def _section(data: str, title: str) -> str:
    lines = [f"### {title}", "", "| recipe | what | published mIoU | tables |", "|---|---|---|---|"]
    for name in recipe_names():
        tree = recipe_tree(name)
        if tree["data"]["name"] == data:
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


if __name__ == "__main__":
    print(page_tables(), end="")
