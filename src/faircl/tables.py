"""A small table that prints itself as markdown, LaTeX, CSV, on a terminal and, through a template, as HTML."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.table import Table as RichTable
from rich.text import Text

Value = str | int | float | None
MISSING = "–"
"""What is printed for None and NaN."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    MISSING: "--",
    "[": "{[}",  # at the start of a row it would be read as an option of the line break before it
    "*": "{*}",  # so would this
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


class Column(NamedTuple):
    """Heading of a column, how many digits its numbers show, and which of them, if any, is the best."""

    name: str
    digits: int = 2
    best: Literal["max", "min"] | None = None


class Cell(NamedTuple):
    """A value as it is shown."""

    text: str
    number: bool
    best: bool


@dataclass(frozen=True)
class Table:
    """Columns and rows of values; numbers stay numbers until they are printed.

    The best value is that of its column, or with ``best_by_row`` that of its row, among the columns that say how.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    best_by_row: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"Row {list(row)} has {len(row)} values for {len(self.columns)} columns.")

    def cells(self) -> list[list[Cell]]:
        """Rows as shown: formatted text, whether it is a number (right-aligned), whether it is the column's best."""
        columns = self.columns
        best = [_best([row[k] for row in self.rows], columns[k]) for k in range(len(columns))]
        judged = [k for k, column in enumerate(columns) if column.best]
        numeric = self.numeric
        out = []
        for row in self.rows:
            if self.best_by_row and judged:
                winner = _best([row[k] for k in judged], columns[judged[0]])
                best = [winner if k in judged else None for k in range(len(columns))]
            texts = [show(value, column.digits) for value, column in zip(row, columns, strict=True)]
            out.append([Cell(t, n, t == b) for t, n, b in zip(texts, numeric, best, strict=True)])
        return out

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers (and gaps) only."""
        return [
            all(not isinstance(row[k], str) for row in self.rows) and len(self.rows) > 0
            for k in range(len(self.columns))
        ]

    def markdown(self) -> str:
        """GitHub-flavoured markdown; best values in bold."""
        lines = [[_markdown(c.name) for c in self.columns], ["--:" if n else ":--" for n in self.numeric]]
        for row in self.cells():
            lines.append([f"**{_markdown(c.text)}**" if c.best else _markdown(c.text) for c in row])
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def latex(self) -> str:
        r"""LaTeX ``tabular`` with booktabs rules; needs ``\usepackage{booktabs}``; best values in bold."""
        head = " & ".join(_latex(c.name) for c in self.columns)
        body = [
            " & ".join(f"\\textbf{{{_latex(c.text)}}}" if c.best else _latex(c.text) for c in row)
            for row in self.cells()
        ]
        spec = "".join("r" if n else "l" for n in self.numeric)
        lines = [f"\\begin{{tabular}}{{{spec}}}", "\\toprule", f"{head} \\\\", "\\midrule"]
        return "\n".join([*lines, *(f"{row} \\\\" for row in body), "\\bottomrule", "\\end{tabular}"]) + "\n"

    def csv(self) -> str:
        """CSV for programs: numbers in full precision, missing values empty."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([c.name for c in self.columns])
        writer.writerows([["" if is_missing(value) else value for value in row] for row in self.rows])
        return out.getvalue()

    def rich(self, title: str | None = None) -> RichTable:
        """Table for the terminal; Text objects, so that a name such as ``[red]`` is not taken for markup."""
        table = RichTable(title=Text(title) if title else None)
        for column, numeric in zip(self.columns, self.numeric, strict=True):
            table.add_column(Text(column.name), justify="right" if numeric else "left")
        for row in self.cells():
            table.add_row(*(Text(c.text, style="bold" if c.best else "") for c in row))
        return table


def is_missing(value: Value) -> bool:
    """Whether a value is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def show(value: Value, digits: int = 2) -> str:
    """Text of a value: floats with ``digits`` decimals, integers with thousands separators, missing as a dash."""
    if value is None or isinstance(value, str):
        return MISSING if value is None else value
    if isinstance(value, int):
        return f"{value:,}"
    # Adding zero turns the "-0.00" of a small negative number into "0.00".
    return MISSING if math.isnan(value) else f"{round(value, digits) + 0.0:,.{digits}f}"


def _best(values: Sequence[Value], column: Column) -> str | None:
    """Text of the best of at least two values; compared as shown, so that equal-looking values are all marked."""
    numbers = [v for v in values if isinstance(v, int | float) and not math.isnan(v)]
    if column.best is None or len(numbers) < 2:
        return None
    return show(max(numbers) if column.best == "max" else min(numbers), column.digits)


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*<>\[\]|&])", r"\\\1", " ".join(text.split()))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in " ".join(text.split()))
