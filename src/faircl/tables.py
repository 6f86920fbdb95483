"""One table for every output: terminal, markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from typing import Literal, NamedTuple

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

TableFormat = Literal["terminal", "markdown", "latex", "csv", "html"]
MISSING = "–"
"""Printed for None and NaN."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    "|": r"\textbar{}",
    ">": r"\textgreater{}",
    MISSING: "--",
    "[": "{[}",  # at the start of a row it would be read as an option of the line break before it
    "*": "{*}",  # so would this
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{c: f"$\\{name}$" for c, name in (("±", "pm"), ("×", "times"), ("→", "rightarrow"), ("Δ", "Delta"))},
}


class MeanStd(NamedTuple):
    """Mean and standard deviation over several runs, shown as ``mean±std``; in CSV each has a column."""

    mean: float
    std: float


class Styled(NamedTuple):
    """A value with a rich style, such as ``bold red``, which only the terminal shows."""

    value: Plain
    style: str


Plain = str | int | float | MeanStd | None
Value = Plain | Styled


class Column(NamedTuple):
    """Heading and number format of a column.

    - digits: decimals of floats; integers have thousands separators.
    - best: which value is marked as the best, if any.
    - kind: ``percent`` shows 0.5 as "50%", ``factor`` 0.5 as "0.5×", ``scientific`` 0.5 as "5e-01".
    - wrap: whether the terminal may break its texts over several lines.
    - detail: whether the terminal leaves the column out where the table would be too wide.

    A line break in ``name`` is kept on the terminal only.
    """

    name: str
    digits: int = 2
    best: Literal["max", "min"] | None = None
    kind: Literal["number", "percent", "factor", "scientific"] = "number"
    wrap: bool = True
    detail: bool = False

    def show(self, value: Plain) -> str:
        """Return a value as text."""
        if isinstance(value, MeanStd):
            return MISSING if math.isnan(value.mean) else f"{self.show(value.mean)}±{self.show(value.std)}"
        if is_missing(value) or isinstance(value, str | None) or self.kind == "number":
            return show(value, self.digits)
        if self.kind == "scientific":
            return f"{value + 0.0:.{self.digits}e}"  # + 0.0 turns -0.0 into 0.0
        return (
            f"{round(value, self.digits + 2) + 0.0:.{self.digits}%}"
            if self.kind == "percent"
            else f"{show(float(value), self.digits)}×"
        )


class Cell(NamedTuple):
    """A value as it is shown."""

    text: str
    number: bool
    best: bool
    style: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows of values; numbers stay numbers until they are printed.

    - best_by_row: compare the columns that have a ``best`` within each row instead of each column within itself.
    - grouped: the first column is the group of a row; the terminal prints it once, above the rows of the group.
    - boxed: draw lines between cells on the terminal.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    best_by_row: bool = False
    title: str = ""
    caption: str = ""
    grouped: bool = False
    boxed: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"Row {list(row)} has {len(row)} values for {len(self.columns)} columns.")

    def cells(self) -> list[list[Cell]]:
        """Return rows as shown: text, whether the column is numeric, whether the value is the best, style."""
        columns, numeric = self.columns, self.numeric
        values = [[_plain(value) for value in row] for row in self.rows]
        best = [_best([row[k] for row in values], column) for k, column in enumerate(columns)]
        judged = [k for k, column in enumerate(columns) if column.best]
        out = []
        for row, plain in zip(self.rows, values, strict=True):
            if self.best_by_row and judged:
                winner = _best([plain[k] for k in judged], columns[judged[0]])
                best = [winner if k in judged else None for k in range(len(columns))]
            texts = [column.show(value) for value, column in zip(plain, columns, strict=True)]
            styles = [value.style if isinstance(value, Styled) else "" for value in row]
            out.append([Cell(t, n, t == b, s) for t, n, b, s in zip(texts, numeric, best, styles, strict=True)])
        return out

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds only numbers and missing values; such columns are aligned to the right."""
        return [
            all(not isinstance(_plain(row[k]), str) for row in self.rows) and len(self.rows) > 0
            for k in range(len(self.columns))
        ]

    def text(self, form: TableFormat) -> str:
        """Return the table as markdown, LaTeX, CSV or HTML."""
        formats: dict[str, Callable[[], str]] = {"markdown": self.markdown, "latex": self.latex}
        return (formats | {"csv": self.csv, "html": self.html})[form]()

    def markdown(self) -> str:
        """Return GitHub-flavoured markdown; best values in bold."""
        lines = [[_markdown(c.name) for c in self.columns], ["--:" if n else ":--" for n in self.numeric]]
        for row in self.cells():
            lines.append([f"**{_markdown(c.text)}**" if c.best else _markdown(c.text) for c in row])
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
        above = f"**{_markdown(self.title)}**\n\n" if self.title else ""
        return above + table + (f"\n{_markdown(self.caption)}\n" if self.caption else "")

    def latex(self) -> str:
        r"""Return a LaTeX ``tabular`` with booktabs rules (``\usepackage{booktabs}``); best values in bold.

        Title and caption are comments.
        """
        body = [
            " & ".join(f"\\textbf{{{_latex(c.text)}}}" if c.best else _latex(c.text) for c in row)
            for row in self.cells()
        ]
        head = " & ".join(_latex(c.name) for c in self.columns)
        spec = "".join("r" if n else "l" for n in self.numeric)
        lines = [f"% {one_line(self.title)}"] if self.title else []
        lines += [f"\\begin{{tabular}}{{{spec}}}", "\\toprule", f"{head} \\\\", "\\midrule"]
        lines += [*(f"{row} \\\\" for row in body), "\\bottomrule", "\\end{tabular}"]
        lines += [f"% {one_line(self.caption)}"] if self.caption else []
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Return CSV for programs: raw numbers in full precision (percentages as fractions), missing values empty."""
        rows = [[_plain(value) for value in row] for row in self.rows]
        double = [any(isinstance(row[k], MeanStd) for row in rows) for k in range(len(self.columns))]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = [one_line(column.name) for column in self.columns]
        heads = [(name, f"{name} std") if two else (name,) for name, two in zip(names, double, strict=True)]
        writer.writerow(chain.from_iterable(heads))
        for row in rows:
            writer.writerow(chain.from_iterable(_csv(value, two) for value, two in zip(row, double, strict=True)))
        return out.getvalue()

    def html(self) -> str:
        """Return an HTML ``table`` element; numbers have the class ``number``, best values also ``best``."""
        lines = ["<table>"]
        if self.title or self.caption:
            about = "; ".join(escape(one_line(text)) for text in (self.title, self.caption) if text)
            lines.append(f"<caption>{about}</caption>")
        heads = zip(self.columns, self.numeric, strict=True)
        cells = [
            f'<th scope="col"{_html_class(number)}>{escape(one_line(column.name))}</th>' for column, number in heads
        ]
        lines += ["<thead><tr>", *cells, "</tr></thead>", "<tbody>"]
        for first, *others in self.cells():
            lines += ["<tr>", f'<th scope="row">{escape(first.text)}</th>']
            lines += [f"<td{_html_class(c.number, c.best)}>{escape(c.text)}</td>" for c in others]
            lines.append("</tr>")
        return "\n".join([*lines, "</tbody>", "</table>"]) + "\n"

    def print_to(self, console: Console) -> None:
        """Print the table on a terminal; on one that is too narrow for it, without its ``detail`` columns."""
        if self.title:
            console.print(Text(self.title, "bold"), soft_wrap=True)
        table = self.rich()
        width = console.measure(table, options=console.options.update(width=10_000)).maximum
        console.print(table if width <= console.width else self.rich(details=False))
        if self.caption:
            console.print(Text(self.caption, "dim"), soft_wrap=True)

    def plain(self, width: int = 160) -> str:
        """Return the table as the terminal shows it, without colours, for a log."""
        out = io.StringIO()
        self.print_to(Console(file=out, width=width, color_system=None, force_terminal=False))
        return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())

    def rich(self, details: bool = True) -> RichTable:
        """Return columns and rows for the terminal, with or without the ``detail`` columns."""
        # Text objects, so that a name such as "[red]" is not taken for markup.
        shown = [k for k, c in enumerate(self.columns) if (details or not c.detail) and not (self.grouped and k == 0)]
        table = RichTable(header_style="bold")
        if not self.boxed:
            table.box = None
        cells, numeric = self.cells(), self.numeric
        for k in shown:
            column = self.columns[k]
            longest = max((len(row[k].text) for row in cells), default=0)
            table.add_column(
                Text(column.name),
                justify="right" if numeric[k] else "left",
                no_wrap=not column.wrap,
                min_width=None if column.wrap or numeric[k] else longest,
            )
        group = None
        for row in cells:
            if self.grouped and row[0].text != group:
                group = row[0].text
                table.add_row()
                table.add_row(Text(group, "bold"))
            table.add_row(*(Text(row[k].text, "bold" if row[k].best else row[k].style) for k in shown))
        return table


def is_missing(value: Plain) -> bool:
    """Whether a value is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def show(value: str | float | None, digits: int = 2) -> str:
    """Return a value as text: floats with ``digits`` decimals, integers with thousands separators."""
    if value is None or isinstance(value, str):
        return MISSING if value is None else value
    if isinstance(value, int):
        return f"{value:,}"
    # Adding zero turns the "-0.00" of a small negative number into "0.00".
    return MISSING if math.isnan(value) else f"{round(value, digits) + 0.0:,.{digits}f}"


def one_line(text: str) -> str:
    """Return a text with every run of white space replaced by one space."""
    return " ".join(text.split())


def _plain(value: Value) -> Plain:
    return value.value if isinstance(value, Styled) else value


def _best(values: Sequence[Plain], column: Column) -> str | None:
    """Return the best of at least two numbers as text; values that look equal are then all marked."""
    numbers = [v for v in values if isinstance(v, int | float) and not math.isnan(v)]
    if column.best is None or len(numbers) < 2:
        return None
    return column.show(max(numbers) if column.best == "max" else min(numbers))


def _csv(value: Plain, double: bool) -> list[str | float]:
    parts = list(value) if isinstance(value, MeanStd) else [value, *([None] if double else [])]
    return ["" if part is None or is_missing(part) else part for part in parts]


def _html_class(number: bool, best: bool = False) -> str:
    words = [word for word, holds in (("number", number), ("best", best)) if holds]
    return f' class="{" ".join(words)}"' if words else ""


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*<>\[\]|&])", r"\\\1", one_line(text))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in one_line(text))
