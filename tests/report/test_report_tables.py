"""Tables: golden texts, escaping, best values, and CSV read back."""

import csv
import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from faircl.tables import Column, MeanStd, Styled, Table, show

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


def test_plain_golden():
    assert replace(TABLE, title="some [red] title", caption="a caption").plain() == (
        "some [red] title\n"
        " Method     all   STD     pixels\n"
        " a|b_1    36.99  20.0  1,234,567\n"
        " <b>& $x  36.99     –          5\n"
        " [red]        –  20.0          –\n"
        "a caption\n"
    )


def test_latex_golden():
    assert TABLE.latex() == (
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        "Method & all & STD & pixels \\\\\n"
        "\\midrule\n"
        "a\\textbar{}b\\_1 & \\textbf{36.99} & \\textbf{20.0} & 1,234,567 \\\\\n"
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
    replace(TABLE, title="Title [b]").print_to(console)
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


# Every kind of value: text, integer, mean and deviation, percent, factor, scientific, missing
KINDS = Table(
    [
        Column("name\nof run"),
        Column("n"),
        Column("IoU", 1),
        Column("share", 1, kind="percent"),
        Column("time", kind="factor"),
        Column("error", 0, kind="scientific"),
    ],
    [
        ["a & <b>", 12345, MeanStd(1 / 3, 0.25), Styled(0.125, "red"), 1.5, 0.00012],
        ["_c", None, 2.0, None, math.nan, None],
    ],
    title="Title #1",
    caption="in % & more",
)


def test_markdown_of_every_kind():
    assert KINDS.text("markdown") == (
        "**Title #1**\n\n"
        "| name of run | n | IoU | share | time | error |\n"
        "| :-- | --: | --: | --: | --: | --: |\n"
        "| a \\& \\<b\\> | 12,345 | 0.3±0.2 | 12.5% | 1.50× | 1e-04 |\n"
        "| _c | – | 2.0 | – | – | – |\n"
        "\nin % \\& more\n"
    )


def test_latex_of_every_kind():
    assert KINDS.text("latex") == (
        "% Title #1\n"
        "\\begin{tabular}{lrrrrr}\n"
        "\\toprule\n"
        "name of run & n & IoU & share & time & error \\\\\n"
        "\\midrule\n"
        "a \\& \\textless{}b\\textgreater{} & 12,345 & 0.3$\\pm$0.2 & 12.5\\% & 1.50$\\times$ & 1e-04 \\\\\n"
        "\\_c & -- & 2.0 & -- & -- & -- \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "% in % & more\n"
    )


def test_csv_of_every_kind():
    assert KINDS.text("csv") == (
        "name of run,n,IoU,IoU std,share,time,error\n"
        "a & <b>,12345,0.3333333333333333,0.25,0.125,1.5,0.00012\n"
        "_c,,2.0,,,,\n"
    )


def test_html_of_every_kind():
    head = ["n", "IoU", "share", "time", "error"]
    rows = [["a &amp; &lt;b&gt;", "12,345", "0.3±0.2", "12.5%", "1.50×", "1e-04"], ["_c", "–", "2.0", "–", "–", "–"]]
    lines = ["<table>", "<caption>Title #1; in % &amp; more</caption>", "<thead><tr>"]
    lines += ['<th scope="col">name of run</th>', *(f'<th scope="col" class="number">{name}</th>' for name in head)]
    lines += ["</tr></thead>", "<tbody>"]
    for first, *others in rows:
        numbers = [f'<td class="number">{text}</td>' for text in others]
        lines += ["<tr>", f'<th scope="row">{first}</th>', *numbers, "</tr>"]
    assert KINDS.text("html") == "\n".join([*lines, "</tbody>", "</table>"]) + "\n"
    assert '<td class="number best">36.99</td>' in TABLE.html()


def test_html_numbers_have_a_true_minus_and_texts_stay_as_they_are():
    table = Table([Column("a"), Column("b"), Column("c")], [["-3", -0.5, "-x"], ["d", MeanStd(-1.0, 2.0), "-1"]])
    html = table.html()
    assert '<td class="number">\N{MINUS SIGN}0.50</td>' in html
    assert '<td class="number">\N{MINUS SIGN}1.00±2.00</td>' in html
    assert '<th scope="row">-3</th>' in html
    assert "<td>-x</td>" in html
    assert "-0.50" in table.markdown()
    assert "-0.5" in table.csv()


def printed(table, width=80):
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    table.print_to(console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_terminal_of_every_kind():
    assert printed(KINDS) == [
        "Title #1",
        " name",
        " of run        n      IoU  share   time  error",
        " a & <b>  12,345  0.3±0.2  12.5%  1.50×  1e-04",
        " _c            –      2.0      –      –      –",
        "in % & more",
    ]


def test_a_narrow_terminal_leaves_details_out():
    table = Table([Column("name", wrap=False), Column("x", detail=True), Column("y")], [["long name", 1.0, 2.0]])
    assert printed(table) == [" name          x     y", " long name  1.00  2.00"]
    assert printed(table, width=20) == [" name          y", " long name  2.00"]


def test_a_very_narrow_terminal_prints_parts_that_all_name_their_rows():
    columns = [Column("method"), *(Column(name, 1, wrap=False) for name in ("old", "new", "all"))]
    table = Table(columns, [["faircl", 71.8, 60.7, 67.7], ["finetune", 3.5, 28.0, 12.4]])
    assert printed(table, width=24) == [
        " method     old   new",
        " faircl    71.8  60.7",
        " finetune   3.5  28.0",
        "",
        " method     all",
        " faircl    67.7",
        " finetune  12.4",
    ]


def test_groups_are_headings_on_the_terminal_and_a_column_elsewhere():
    table = Table([Column("data"), Column("name")], [["voc", "a"], ["voc", "b"], ["ade", "c"]], grouped=True)
    assert printed(table) == [" name", "", " voc", " a", " b", "", " ade", " c"]
    assert table.csv() == "data,name\nvoc,a\nvoc,b\nade,c\n"


# What a comparison adds: marks, values that are not ranked, groups of columns and rows, footnotes

MARKED = Table(
    [Column("kind"), Column("run"), Column("all", 1, best="max", group="100-50"), Column("STD", 1, group="100-50")],
    [
        ["ours", "a", MeanStd(50.0, 1.0), Styled(20.0, best=True)],
        ["ours", "b", Styled(MeanStd(40.0, 2.0), mark="worse"), Styled(10.0, best=False)],
        ["theirs", "c†", Styled(99.0, best=False), Styled(None, mark="better", best=False)],
    ],
    grouped=True,
    footnotes=("† as printed",),
)


def test_marks_and_values_that_are_not_ranked():
    assert [[cell.best for cell in row[2:]] for row in MARKED.cells()] == [[True, True], [False, False], [False, False]]
    assert MARKED.markdown() == (
        "| kind | run | 100-50 all | 100-50 STD |\n"
        "| :-- | :-- | --: | --: |\n"
        "| ours | a | **50.0±1.0** | **20.0** |\n"
        "| ours | b | 40.0±2.0▼ | 10.0 |\n"
        "| theirs | c† | 99.0 | –▲ |\n"
        "\n† as printed\n"
    )


def test_groups_of_columns_and_rows_in_latex():
    assert MARKED.latex().splitlines() == [
        "\\begin{tabular}{lrr}",
        "\\toprule",
        " & \\multicolumn{2}{c}{100-50} \\\\",
        "\\cmidrule(lr){2-3}",
        "run & all & STD \\\\",
        "\\midrule",
        "\\multicolumn{3}{l}{\\textit{ours}} \\\\",
        "a & \\textbf{50.0$\\pm$1.0} & \\textbf{20.0} \\\\",
        "b & 40.0$\\pm$2.0\\textsuperscript{$-$} & 10.0 \\\\",
        "\\midrule",
        "\\multicolumn{3}{l}{\\textit{theirs}} \\\\",
        "c\\textsuperscript{$\\dagger$} & 99.0 & --\\textsuperscript{+} \\\\",
        "\\bottomrule",
        "\\end{tabular}",
        "\\par\\smallskip{\\footnotesize \\textsuperscript{$\\dagger$} as printed\\par}",
    ]


def test_marks_have_columns_in_csv_and_names_in_html():
    rows = list(csv.DictReader(io.StringIO(MARKED.csv())))
    assert list(rows[0]) == [
        "kind",
        "run",
        "100-50 all",
        "100-50 all std",
        "100-50 all mark",
        "100-50 STD",
        "100-50 STD mark",
    ]
    assert [row["100-50 all mark"] for row in rows] == ["", "worse", ""]
    html = MARKED.html()
    assert '<th scope="colgroup" colspan="2">100-50</th>' in html
    assert '<th scope="rowgroup" colspan="3">theirs</th>' in html
    assert '<span class="mark worse" role="img" aria-label="worse">▼</span>' in html
    assert '<tfoot><tr><td colspan="3">† as printed</td></tr></tfoot>' in html
    assert "40.0±2.0▼" in MARKED.plain()
