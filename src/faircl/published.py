"""The paper's tables as printed, and the rows of them that a packaged recipe aims at.

The numbers are the paper's claims; nothing in them was measured with this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from faircl.config import recipe_tree

Row = tuple[float | None, ...]


@dataclass(frozen=True)
class Table:
    """The columns of one task in one of the paper's tables, in percent.

    A column is the mIoU of a group of classes, or with ``STD`` the standard deviation of their IoUs. ``source`` is the
    table's number and label in the paper; None in a row is the paper's dash.
    """

    name: str
    source: str
    title: str
    decimals: int
    columns: tuple[str, ...]
    rows: Mapping[str, Row]

    def row(self, name: str) -> dict[str, float | None]:
        """Return a row by column."""
        return dict(zip(self.columns, self.rows[name], strict=True))

    def text(self, value: float | None) -> str:
        """Write a number with as many decimals as the paper does."""
        return "-" if value is None else f"{value:.{self.decimals}f}"


@dataclass(frozen=True)
class Entry:
    """One row of one table."""

    table: Table
    row: str

    def numbers(self) -> dict[str, float | None]:
        """Return the row by column."""
        return self.table.row(self.row)

    def headline(self) -> str:
        """Return mIoU over all classes, or of the groups where the table has nothing else."""
        numbers = self.numbers()
        columns = [column for column in ("all", "major", "minor") if column in numbers]
        return ", ".join(f"{column} {self.table.text(numbers[column])}" for column in columns)


@dataclass(frozen=True)
class Published:
    """What the paper prints of one run, in all of its tables; the first entry is the main one."""

    entries: tuple[Entry, ...]


def published(recipe: str) -> Published | None:
    """Return what the paper prints of a packaged recipe's run; None where it prints nothing."""
    rows = recipe_tree(recipe).get("published")
    return None if rows is None else Published(tuple(Entry(tables()[table], row) for table, row in rows.items()))


@cache
def tables() -> dict[str, Table]:
    """Return the paper's tables by name, one per task and table."""
    text = (resources.files("faircl.recipes") / "_published.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    return {name: _table(name, **parts) for name, parts in found.items()}


def _table(
    name: str, source: str, title: str, decimals: int, columns: list[str], rows: dict[str, list[float | None]]
) -> Table:
    return Table(name, source, title, decimals, tuple(columns), {row: tuple(cells) for row, cells in rows.items()})
