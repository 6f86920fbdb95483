"""``--format``: every command that prints a table prints it in every format, with nothing else on standard output."""

import csv
import io
from html.parser import HTMLParser

import pytest
from fake_run import make_run

TINY_MAPS = ("--classes", 5, "--size", 16, "--batch", 2, "--rounds", 1, "--stride", 4)
TINY_STEP = ("--batch", 2, "--size", 32, "--precision", "fp32", "--iterations", 1, "--rounds", 1)
SMALL_SCENES = [part for key in ("images=6", "test_images=2", "size=32") for part in ("--set", f"data.{key}")]
QUICK = {
    "methods": ("methods",),
    "method": ("methods", "faircl"),
    "models": ("models",),
    "model": ("models", "small"),
    "recipes": ("recipes",),
    "recipes of a method": ("recipes", "--method", "plop"),
    "readers": ("data", "list"),
    "reader": ("data", "list", "folder"),
    "stats": ("data", "stats", "--data", "scenes", "--task", "6-4", *SMALL_SCENES),
    "check": ("data", "check", "--data", "scenes", *SMALL_SCENES),
    "scenario": ("scenario", "show", "--data", "scenes", "--task", "6-4", *SMALL_SCENES),
    "loss": ("bench", "loss", *TINY_MAPS, "--no-exact"),
    "evaluation": ("bench", "evaluation", *TINY_MAPS),
}
FORMATS = ("markdown", "latex", "csv", "html")


class Cells(HTMLParser):
    """Number of cells of every row; checks that tags nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append(0)
        span = int(dict(attrs).get("colspan", 1))
        self.rows[-1:] = [self.rows[-1] + span * (tag in ("th", "td"))] if self.rows else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def widths(text: str, form: str) -> list[int]:
    """Return the number of cells of every row of a table, after checking what stands around them."""
    if form == "csv":
        return [len(row) for row in csv.reader(io.StringIO(text))]
    if form == "html":
        assert text.startswith("<table>\n")
        assert text.endswith("</table>\n")
        return Cells(text).rows
    lines = text.splitlines()
    if form == "latex":
        lines = [line for line in lines if not line.startswith(("% ", "\\par\\smallskip"))]  # notes below
        assert lines[0].startswith("\\begin{tabular}{")
        assert [lines[1], lines[3], *lines[-2:]] == ["\\toprule", "\\midrule", "\\bottomrule", "\\end{tabular}"]
        rows = [line for line in (lines[2], *lines[4:-2]) if line != "\\midrule"]
        assert all(line.endswith(" \\\\") for line in rows)
        columns = len(lines[0].partition("}{")[2]) - 1
        titles = [line for line in rows if line.startswith("\\multicolumn")]  # of groups, over all columns
        assert all(line.startswith(f"\\multicolumn{{{columns}}}") for line in titles)
        return [columns, *(line.count(" & ") + 1 for line in rows if line not in titles)]
    rows = [line for line in lines if line.startswith("|")]
    assert all(row.endswith(" |") for row in rows)
    return [row.replace("\\|", "").count("|") - 1 for row in rows]


def check(result, form: str) -> list[int]:
    assert result.code == 0, result.err
    found = widths(result.out, form)
    assert len(set(found)) == 1
    return found


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("args", QUICK.values(), ids=QUICK)
def test_tables_are_well_formed(args, form, cli):
    assert check(cli(*args, "--format", form), form)[0] > 1


@pytest.mark.parametrize("form", FORMATS)
def test_comparison(form, cli, tmp_path):
    runs = [make_run(tmp_path / name, seed=seed, method=name, examples=0) for seed, name in enumerate("ab")]
    result = cli("compare", *(f"x={run}" for run in runs), "--format", form)
    check(result, form)
    assert "differ in method" in result.err  # notes are no part of the table
    if form == "csv":
        header, row = csv.reader(io.StringIO(result.out))
        assert header[:4] == ["method", "runs", "old", "old std"]
        assert "." in row[2]
        assert len(row[2].partition(".")[2]) > 6  # not rounded


def test_evaluation_and_training(cli, tiny_run, tiny_flags):
    evaluated = cli("eval", tiny_run.path, "--format", "csv")
    check(evaluated, "csv")
    again = cli("train", "demo", "--out", tiny_run.path, "--resume", *tiny_flags, "--format", "csv")
    assert again.out == evaluated.out
    assert "report: " in again.err
    several = cli("eval", tiny_run.path, tiny_run.path, "--format", "csv")
    assert several.out == f"{evaluated.out}\n{evaluated.out}"


def test_timed_steps(cli):
    small = ("--model", "{name: small, width: 8, embedding: 8}")
    check(cli("bench", "step", *small, *TINY_STEP, "--format", "csv"), "csv")
    check(cli("bench", "methods", *small, *TINY_STEP, "--method", "mib", "--format", "markdown"), "markdown")
    sizes = ("--images", 2, "--width", 32, "--height", 32, "--size", 16, "--batch", 2, "--workers", 0, "--seconds", 0)
    check(cli("bench", "input", *sizes, "--format", "latex"), "latex")


def test_one_recipe_has_several_tables(cli):
    result = cli("recipes", "voc-15-1", "--format", "csv")
    tables = result.out.split("\n\n")
    assert len(tables) == 2
    for table in tables:
        assert len(set(widths(table, "csv"))) == 1
    assert "faircl train voc-15-1" in result.err


def test_an_unknown_format_is_refused(cli):
    result = cli("methods", "--format", "pdf")
    assert (result.code, result.out) == (2, "")
    assert "pdf" in result.err
