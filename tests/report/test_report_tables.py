"""Tables: golden texts, escaping, best values, and CSV read back."""

import csv
import io
import math

import pytest
from rich.console import Console

from faircl.tables import Column, Table, show

TABLE = Table(
    [Column("Method"), Column("all", best="max"), Column("STD", 1, best="min"), Column("pixels")],
    [["a|b_1", 36.994, 20.04, 1234567], ["<b>& $x", 36.991, math.nan, 5], ["[red]", None, 19.96, None]],
)


def test_markdown_golden():
    assert TABLE.markdown() == (
        "| Method | all | STD | pixels |\n"
        "| :-- | --: | --: | --: |\n"
        "| a\\|b_1 | **36.99** | **20.0** | 1,234,567 |\n"
        "| \\<b\\>\\& $x | **36.99** | – | 5 |\n"
        "| \\[red\\] | – | **20.0** | – |\n"
    )


def test_latex_golden():
    assert TABLE.latex() == (
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        "Method & all & STD & pixels \\\\\n"
        "\\midrule\n"
        "a|b\\_1 & \\textbf{36.99} & \\textbf{20.0} & 1,234,567 \\\\\n"
        "\\textless{}b\\textgreater{}\\& \\$x & \\textbf{36.99} & -- & 5 \\\\\n"
        "{[}red] & -- & \\textbf{20.0} & -- \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_latex_row_may_start_with_what_would_be_an_option_of_the_line_break():
    assert Table([Column("n")], [["x"], ["[2em]"], ["*"]]).latex().splitlines()[5:7] == ["{[}2em] \\\\", "{*} \\\\"]


def test_csv_reads_back_in_full_precision():
    table = Table([Column("name"), Column("x"), Column("n")], [['a,"b"\nc', 1 / 3, 7], ["d", math.nan, None]])
    rows = list(csv.reader(io.StringIO(table.csv())))
    assert rows[0] == ["name", "x", "n"]
    assert rows[1][0] == 'a,"b"\nc'
    assert float(rows[1][1]) == 1 / 3
    assert rows[1][2] == "7"
    assert rows[2] == ["d", "", ""]


def test_rich_shows_markup_as_it_is():
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(TABLE.rich("Title [b]"))
    text = console.file.getvalue()
    assert "[red]" in text
    assert "Title [b]" in text
    assert "36.99" in text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(None, 2, "–"), (math.nan, 2, "–"), (-0.001, 2, "0.00"), (12345.678, 1, "12,345.7"), (1200, 2, "1,200"),
     ("x", 2, "x"), (-1.5, 2, "-1.50"), (0.0, 0, "0")],
)  # fmt: skip
def test_show(value, digits, text):
    assert show(value, digits) == text


def test_best_needs_rivals_and_may_be_sought_by_row():
    assert not any(c.best for row in Table([Column("x", best="max")], [[1.0]]).cells() for c in row)
    columns = [Column("class"), Column("n"), Column("a", best="max"), Column("b", best="max")]
    cells = Table(columns, [["x", 9, 1.0, 2.0], ["y", 9, 5.0, 4.0], ["z", 9, 3.0, None]], best_by_row=True).cells()
    assert [[c.best for c in row] for row in cells] == [
        [False, False, False, True],
        [False, False, True, False],
        [False] * 4,
    ]


def test_row_of_wrong_length():
    with pytest.raises(ValueError, match="2 values for 1 columns"):
        Table([Column("a")], [[1, 2]])


def test_empty_table():
    table = Table([Column("a")], [])
    assert table.markdown() == "| a |\n| :-- |\n"
    assert table.csv() == "a\n"
