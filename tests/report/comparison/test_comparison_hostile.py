"""Names that are commands elsewhere are texts in HTML, LaTeX, CSV and a spreadsheet."""

import csv
import io
import shutil
import subprocess

import pytest
from recorded_run import FORMULA, HOSTILE, MIXED, SCRIPT, make_recorded_run

import faircl
from faircl.report.comparison.tables import main_table
from faircl.table_escapes import csv_line, latex_text
from faircl.tables import Column, Table

LABELS = ("=cmd|' /C calc'!A0", SCRIPT, MIXED)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    runs = [make_recorded_run(root / f"{k}", HOSTILE, seed=k, right=0.5 + 0.1 * k, pictures=1) for k in range(3)]
    return faircl.compare(runs, LABELS, root / "page")


def restored(text):
    """Take off the apostrophe that keeps a text from being a formula, as the documentation says."""
    return text[1:] if text.startswith("'") and text.lstrip("'")[:1] in tuple("=+-@\t\r\n") else text


def test_csv_reads_back_and_holds_no_formula(compared):
    rows = list(csv.DictReader(io.StringIO(compared.class_table.csv())))
    for row in rows:
        assert row["run"][0] not in "=+-@\t"
        assert row["class"][0] not in "=+-@\t"
        assert float(row["low"]) <= float(row["difference"]) <= float(row["high"])  # numbers may be negative
    assert {restored(row["class"]) for row in rows} == set(HOSTILE)
    assert {restored(row["run"]) for row in rows} == set(LABELS[1:])
    header = next(csv.reader(io.StringIO(compared.class_table.csv())))
    assert header[3] == f"IoU of {LABELS[0]}"


@pytest.mark.parametrize(
    "text", ["=1", "+1", "-1", "@a", "\ta", "\ra", "\na", "'=1", "''-x", "＝1", "a;=1+1", 'a,"b"', "plain", "'quoted'"]
)
def test_texts_come_back_from_csv(text):
    (line,) = csv.reader(io.StringIO(csv_line([text, -1.5, 3]), newline=""))
    assert restored(line[0]) == text if text[0] != "＝" else line[0] == "'＝1"
    assert line[1:] == ["-1.5", "3"]
    assert not line[0].startswith(tuple("=+-@\t\r\n"))
    if ";" in text:
        assert csv_line([text]).startswith('"')  # one cell, also where a semicolon separates


def test_html_shows_texts(compared):
    html = compared.page.read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert html.count("<script>") == 1  # the page's own
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "\x1b" not in html
    assert SCRIPT not in compared.table.html()


def test_terminal_is_sent_no_command(compared):
    assert "\x1b" not in compared.class_table.plain()


def document(*tables):
    body = "\n\n".join(tables)
    return f"\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"


def test_latex_has_no_command_of_a_name(compared):
    text = compared.class_table.latex()
    assert "\\input" not in text
    assert "\\textbackslash{}input\\{x\\}" in text
    assert "\\faircltext{🚗}{{[}automobile]} \\& \\faircltext{犬}{{[}U+72AC]}" in text
    assert text.startswith("\\providecommand{\\faircltext}")
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    assert sum(line.count("{") for line in lines) - sum(line.count("\\{") for line in lines) == sum(
        line.count("}") for line in lines
    ) - sum(line.count("\\}") for line in lines)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_latex_compiles(compared, tmp_path):
    letters = [*map(chr, range(33, 127)), *map(chr, range(0xA1, 0x250)), *"λΔ√≤…犬🚗—−ℓ", "a--b", "[x]", "*"]
    tables = [main_table(compared, layout).latex() for layout in ("full", "paper", "ablation", "groups")]
    tables += [Table([Column(c), Column("n")], [[c, 1.0]]).latex() for c in letters]
    (tmp_path / "t.tex").write_text(document(*tables, compared.class_table.latex()), encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    if shutil.which("pdftotext"):
        text = subprocess.run(["pdftotext", tmp_path / "t.pdf", "-"], capture_output=True, text=True).stdout
        assert SCRIPT in text
        assert FORMULA in text


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not installed")
def test_a_spreadsheet_computes_nothing(compared, tmp_path):
    """LibreOffice reads the file, evaluates what it takes for a formula, and writes what its cells show."""
    (tmp_path / "in.csv").write_text(compared.class_table.csv() + csv_line(["=1+1", "=1+1", 0]), encoding="utf-8")
    (tmp_path / "raw.csv").write_text("=1+1\n", encoding="utf-8")  # LibreOffice computes this
    # Fields by comma, texts in quotation marks, UTF-8, from the first line, formulas evaluated.
    reading = "--infilter=Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,false,false,false,0,true"
    command = [
        "soffice",
        f"-env:UserInstallation=file://{tmp_path}/profile",
        "--headless",
        reading,
        "--convert-to",
        "html",
    ]
    done = subprocess.run(
        [*command, "--outdir", tmp_path / "out", tmp_path / "in.csv", tmp_path / "raw.csv"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    raw, shown = ((tmp_path / "out" / f"{name}.html").read_text(encoding="utf-8") for name in ("raw", "in"))
    assert 'sdval="2"' in raw  # the filter does evaluate formulas
    assert "=1+1" in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "<script" not in shown


def test_dashes_quotes_and_brackets_of_names_stay_as_they_are():
    assert latex_text('a--b [c] "d" –') == "a-{}-b {[}c] ''d'' --"
    assert latex_text("ą") == "\\faircltext{ą}{a}"
    assert latex_text("e\u0301\u200d") == "e"  # marks and joiners have no glyph of their own
