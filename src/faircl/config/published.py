"""Published tables as printed, and the rows that a packaged recipe is to reproduce.

Tables are from the FairCL paper or, for what it does not print, from the papers of other methods. The numbers are
claims of their authors; none was measured with this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from faircl.config.recipes import recipe_tree

Row = tuple[float | None, ...]


@dataclass(frozen=True)
class PublishedTable:
    """The columns of one task in a published table, in percent.

    A column is the mIoU of a group of classes, or with ``STD`` the standard deviation of their IoUs. ``source`` is the
    table's number and label in the paper, or where ``paper`` is False whose tables it is from; None in a row is a dash.
    """

    name: str
    source: str
    title: str
    decimals: int
    columns: tuple[str, ...]
    rows: Mapping[str, Row]
    paper: bool

    def row(self, name: str) -> dict[str, float | None]:
        """Return a row by column."""
        return dict(zip(self.columns, self.rows[name], strict=True))

    def text(self, value: float | None) -> str:
        """Write a number with as many decimals as the table does."""
        return "-" if value is None else f"{value:.{self.decimals}f}"


@dataclass(frozen=True)
class Entry:
    """One row of one table."""

    table: PublishedTable
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
    """What is printed of one run, in all tables; the first entry is the main one."""

    entries: tuple[Entry, ...]


def published(recipe: str) -> Published | None:
    """Return what is printed of a packaged recipe's run; None where nothing is."""
    rows = recipe_tree(recipe).get("published")
    return None if rows is None else Published(tuple(Entry(tables()[table], row) for table, row in rows.items()))


@cache
def tables() -> dict[str, PublishedTable]:
    """Return the published tables by name, one per task and table: the paper's, then others'."""
    return _read("_published.yaml", paper=True) | _read("_published-elsewhere.yaml", paper=False)


def _read(file: str, paper: bool) -> dict[str, PublishedTable]:
    found = yaml.safe_load((resources.files("faircl.recipes") / file).read_text(encoding="utf-8"))
    return {name: _table(name, paper=paper, **parts) for name, parts in found.items()}


def _table(
    name: str,
    source: str,
    title: str,
    decimals: int,
    columns: list[str],
    rows: dict[str, list[float | None]],
    paper: bool,
) -> PublishedTable:
    cells = {row: tuple(values) for row, values in rows.items()}
    return PublishedTable(name, source, title, decimals, tuple(columns), cells, paper)
