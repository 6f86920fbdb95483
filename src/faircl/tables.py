"""One table for every output: terminal, markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, groupby
from typing import Literal

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from faircl.table_cells import (
    MISSING,
    Cell,
    Column,
    Mark,
    MeanStd,
    Plain,
    Styled,
    Value,
    best_of,
    is_missing,
    show,
    styled,
    true_minus,
    wins,
)
from faircl.table_escapes import LATEX_HEAD, csv_line, latex_text, markdown_text, needs_latex_head, one_line

__all__ = [
    "MISSING",
    "Cell",
    "Column",
    "Mark",
    "MeanStd",
    "Plain",
    "Styled",
    "Table",
    "TableFormat",
    "Value",
    "is_missing",
    "one_line",
    "show",
    "true_minus",
]

TableFormat = Literal["terminal", "markdown", "latex", "csv", "html"]
_MARKS = {"better": "▲", "worse": "▼"}


@dataclass(frozen=True)
class Table:
    """Columns and rows of values; numbers stay numbers until they are printed.

    - best_by_row: compare the columns that have a ``best`` within each row instead of each column within itself.
    - grouped: the first column is the group of a row; terminal, LaTeX and HTML print it once, above the rows of the
      group.
    - boxed: draw lines between cells on the terminal.
    - footnotes: sentences below the table, in every format but CSV.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    best_by_row: bool = False
    title: str = ""
    caption: str = ""
    grouped: bool = False
    boxed: bool = False
    footnotes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"Row {list(row)} has {len(row)} values for {len(self.columns)} columns.")

    def cells(self) -> list[list[Cell]]:
        """Return rows as shown: text, whether the column is numeric, whether the value is the best, style, mark."""
        columns, numeric = self.columns, self.numeric
        values = [[styled(value) for value in row] for row in self.rows]
        best = [best_of([row[k] for row in values], column) for k, column in enumerate(columns)]
        judged = [k for k, column in enumerate(columns) if column.best]
        out = []
        for row in values:
            if self.best_by_row and judged:
                winner = best_of([row[k] for k in judged], columns[judged[0]])
                best = [winner if k in judged else None for k in range(len(columns))]
            out.append(
                [
                    Cell(column.show(value.value), number, wins(value, column, top), value.style, value.mark)
                    for value, column, number, top in zip(row, columns, numeric, best, strict=True)
                ]
            )
        return out

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds only numbers and missing values; such columns are aligned to the right."""
        return [
            all(not isinstance(styled(row[k]).value, str) for row in self.rows) and len(self.rows) > 0
            for k in range(len(self.columns))
        ]

    def text(self, form: TableFormat) -> str:
        """Return the table as markdown, LaTeX, CSV or HTML."""
        formats: dict[str, Callable[[], str]] = {"markdown": self.markdown, "latex": self.latex}
        return (formats | {"csv": self.csv, "html": self.html})[form]()

    def markdown(self) -> str:
        """Return GitHub-flavoured markdown; best values in bold."""
        lines = [[markdown_text(c.heading) for c in self.columns], ["--:" if n else ":--" for n in self.numeric]]
        for row in self.cells():
            texts = [(markdown_text(c.text), _sign(c), c.best) for c in row]
            lines.append([f"**{text}**{sign}" if best else text + sign for text, sign, best in texts])
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
        above = f"**{markdown_text(self.title)}**\n\n" if self.title else ""
        below = "".join(f"\n{markdown_text(text)}\n" for text in (self.caption, *self.footnotes) if text)
        return above + table + below

    def latex(self) -> str:
        r"""Return a LaTeX ``tabular`` with booktabs rules (``\usepackage{booktabs}``); best values in bold.

        Title and caption are comments; footnotes are set below in small print.
        """
        first = int(self.grouped)
        columns, numeric = self.columns[first:], self.numeric[first:]
        body: list[str] = []
        for group, rows in _sections(self.cells(), self.grouped):
            body += ["\\midrule"] if body else []
            if group:
                body.append(f"\\multicolumn{{{len(columns)}}}{{l}}{{\\textit{{{latex_text(group)}}}}} \\\\")
            body += [" & ".join(map(_latex_cell, row)) + " \\\\" for row in rows]
        spec = "".join("r" if n else "l" for n in numeric)
        lines = [f"% {one_line(self.title)}"] if self.title else []
        lines += [f"\\begin{{tabular}}{{{spec}}}", "\\toprule", *_latex_groups(columns)]
        lines += [" & ".join(latex_text(c.name) for c in columns) + " \\\\", "\\midrule", *body]
        lines += ["\\bottomrule", "\\end{tabular}"]
        lines += [f"\\par\\smallskip{{\\footnotesize {latex_text(text)}\\par}}" for text in self.footnotes]
        lines += [f"% {one_line(self.caption)}"] if self.caption else []
        text = "\n".join(lines) + "\n"
        return f"{LATEX_HEAD}\n{text}" if needs_latex_head(text) else text

    def csv(self) -> str:
        """Return CSV for programs: raw numbers in full precision (percentages as fractions), missing values empty.

        Texts that a spreadsheet would take for a formula have an apostrophe in front, see ``csv_line``.
        """
        rows = [[styled(value) for value in row] for row in self.rows]
        parts = []
        for k, column in enumerate(self.columns):
            name = one_line(column.heading)
            double = any(isinstance(row[k].value, MeanStd) for row in rows)
            marked = any(row[k].mark for row in rows)
            names = [name] + [f"{name} std"] * double + [f"{name} mark"] * marked
            parts.append((names, double, marked))
        lines = [csv_line(chain.from_iterable(names for names, _, _ in parts))]
        for row in rows:
            cells = zip(row, parts, strict=True)
            lines.append(csv_line(chain.from_iterable(_csv(value, *asked) for value, (_, *asked) in cells)))
        return "".join(lines)

    def html(self) -> str:
        """Return an HTML ``table`` element; numbers have the class ``number``, best values also ``best``."""
        first = int(self.grouped)
        columns, numeric = self.columns[first:], self.numeric[first:]
        lines = ["<table>"]
        about = "; ".join(escape(one_line(text)) for text in (self.title, self.caption) if text)
        lines += [f"<caption>{about}</caption>"] if about else []
        heads = zip(columns, numeric, strict=True)
        cells = [
            f'<th scope="col"{_html_class(number)}>{escape(one_line(column.name))}</th>' for column, number in heads
        ]
        lines += [f"<thead>{_html_groups(columns)}<tr>", *cells, "</tr></thead>"]
        for group, rows in _sections(self.cells(), self.grouped):
            lines.append("<tbody>")
            if group:
                lines.append(f'<tr><th scope="rowgroup" colspan="{len(columns)}">{escape(group)}</th></tr>')
            for head, *others in rows:
                lines += ["<tr>", f'<th scope="row">{escape(head.text)}</th>']
                lines += [f"<td{_html_class(c.number, c.best)}>{_html_text(c)}{_html_mark(c)}</td>" for c in others]
                lines.append("</tr>")
            lines.append("</tbody>")
        if self.footnotes:
            notes = "<br>".join(map(escape, self.footnotes))
            lines.append(f'<tfoot><tr><td colspan="{len(columns)}">{notes}</td></tr></tfoot>')
        return "\n".join([*lines, "</table>"]) + "\n"

    def print_to(self, console: Console) -> None:
        """Print the table on a terminal.

        On one that is too narrow for it, without its ``detail`` columns; where that is not enough, in parts below each
        other, each of which begins with the names of the rows.
        """
        if self.title:
            console.print(Text(self.title, "bold"), soft_wrap=True)
        shown = self._shown()
        if self._widths(console, shown).maximum > console.width:
            shown = [k for k in shown if not self.columns[k].detail]
        if self._widths(console, shown).minimum <= console.width:
            console.print(self.rich(shown))
        else:
            for n, part in enumerate(self._parts(console, shown)):
                console.print(*([""] if n else []), self.rich(part), sep="\n")
        for text in (self.caption, *self.footnotes):
            if text:
                console.print(Text(text, "dim"), soft_wrap=True)

    def plain(self, width: int = 160) -> str:
        """Return the table as the terminal shows it, without colours, for a log."""
        out = io.StringIO()
        self.print_to(Console(file=out, width=width, color_system=None, force_terminal=False))
        return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())

    def rich(self, shown: Sequence[int]) -> RichTable:
        """Return rows and the columns of these indices for the terminal."""
        # Text objects, so that a name such as "[red]" is not taken for markup.
        table = RichTable(header_style="bold")
        if not self.boxed:
            table.box = None
        cells, numeric = self.cells(), self.numeric
        # Beside a mark the others of the column keep a place free, so that digits stay aligned.
        room = ["\N{NO-BREAK SPACE}" if any(row[k].mark for row in cells) else "" for k in range(len(self.columns))]
        for k in shown:
            column = self.columns[k]
            longest = max((len(row[k].text) for row in cells), default=0)
            table.add_column(
                Text(column.heading),
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
            texts = [(row[k].text + (_sign(row[k]) or room[k]), row[k]) for k in shown]
            table.add_row(*(Text(text, "bold" if cell.best else cell.style) for text, cell in texts))
        return table

    def _shown(self) -> list[int]:
        return list(range(int(self.grouped), len(self.columns)))

    def _widths(self, console: Console, shown: Sequence[int]) -> Measurement:
        """Return the least and the most width of these columns, whatever the width of the terminal."""
        return console.measure(self.rich(shown), options=console.options.update(width=10_000))

    def _parts(self, console: Console, shown: Sequence[int]) -> list[list[int]]:
        """Divide columns into as few parts as fit, each of which begins with the first column."""
        first, *others = shown
        parts = [[first]]
        for k in others:
            fits = self._widths(console, [*parts[-1], k]).maximum <= console.width
            if fits or len(parts[-1]) == 1:
                parts[-1].append(k)
            else:
                parts.append([first, k])
        return parts


def _sections(rows: Sequence[Sequence[Cell]], grouped: bool) -> Iterable[tuple[str, list[Sequence[Cell]]]]:
    """Return every group's name and rows, without the column of the groups; one without a name if there are none."""
    if not grouped:
        return [("", list(rows))]
    return [(group, [row[1:] for row in own]) for group, own in groupby(rows, key=lambda row: row[0].text)]


def _spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Return neighbouring columns of one heading: the heading and their number."""
    spans = [(group, len(list(own))) for group, own in groupby(columns, key=lambda column: column.group)]
    return spans if any(group for group, _ in spans) else []


def _sign(cell: Cell) -> str:
    return _MARKS[cell.mark] if cell.mark else ""


def _latex_cell(cell: Cell) -> str:
    text = latex_text(cell.text)
    return (f"\\textbf{{{text}}}" if cell.best else text) + latex_text(_sign(cell))


def _latex_groups(columns: Sequence[Column]) -> list[str]:
    """Return the row of headings above groups of columns, and the rules below it."""
    spans = _spans(columns)
    if not spans:
        return []
    heads = [f"\\multicolumn{{{n}}}{{c}}{{{latex_text(name)}}}" if name else " & ".join([""] * n) for name, n in spans]
    ends = [sum(n for _, n in spans[: k + 1]) for k in range(len(spans))]
    rules = [f"\\cmidrule(lr){{{end - n + 1}-{end}}}" for (name, n), end in zip(spans, ends, strict=True) if name]
    return [" & ".join(heads) + " \\\\", " ".join(rules)]


def _html_groups(columns: Sequence[Column]) -> str:
    heads = [
        f'<th scope="colgroup" colspan="{n}">{escape(name)}</th>' if name else f'<td colspan="{n}"></td>'
        for name, n in _spans(columns)
    ]
    return f"<tr>{''.join(heads)}</tr>" if heads else ""


def _html_class(number: bool, best: bool = False) -> str:
    words = [word for word, holds in (("number", number), ("best", best)) if holds]
    return f' class="{" ".join(words)}"' if words else ""


def _html_text(cell: Cell) -> str:
    return escape(true_minus(cell.text) if cell.number else cell.text)


def _html_mark(cell: Cell) -> str:
    if cell.mark is None:
        return ""
    return f'<span class="mark {cell.mark}" role="img" aria-label="{cell.mark}">{_sign(cell)}</span>'


def _csv(value: Styled, double: bool, marked: bool) -> list[str | float]:
    plain = value.value
    parts: list[str | float | None] = list(plain) if isinstance(plain, MeanStd) else [plain, *([None] * double)]
    parts += [value.mark] * marked
    return ["" if part is None or is_missing(part) else part for part in parts]
