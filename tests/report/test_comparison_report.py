"""Comparison pages and tables of fake run folders: content, escaping, offline."""

import json
import re
from html.parser import HTMLParser

import pytest
from fake_run import make_run

from faircl.errors import UserError
from faircl.report import plots
from faircl.report.page import write_comparison_page
from faircl.report.run_tables import class_table, comparison_table, step_table
from faircl.runs.run import load_run
from faircl.tables import Column, Table


class Outline(HTMLParser):
    """Checks that tags nest, and collects texts, images and tags."""

    VOID = frozenset({"meta", "img", "br", "link", "input"})

    def __init__(self, html):
        super().__init__()
        self.stack, self.tags, self.images, self.text = [], [], [], ""
        self.feed(html)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(path):
    html = path.read_text(encoding="utf-8")
    # Nothing is fetched: no links, scripts or styles from elsewhere; w3.org names XML namespaces only.
    assert not re.search(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink))", html)
    assert not re.search(r'(?:src|href)="(?!data:|#)', html)
    assert "<script" not in html
    assert "<b>" not in html
    assert "url(http" not in html
    assert not list(path.parent.glob(".*tmp"))
    return html, Outline(html)


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path / "run")


@pytest.fixture
def no_plots(monkeypatch):
    """Drawing takes most of the time of a page, and has its own tests."""
    for name in ("miou_over_steps", "loss_curves", "comparison_bars", "comparison_over_steps"):
        monkeypatch.setattr(plots, name, lambda _: "<svg></svg>")


def test_groups_of_published_tables_stand_first_where_classes_came_in_several_steps(tmp_path, no_plots):
    many = load_run(make_run(tmp_path / "many"))
    two = load_run(make_run(tmp_path / "two", learned=(0, 0, 0, 1, 1)))
    table = comparison_table([("a", many), ("b", many)])
    assert [column.name for column in table.columns[:4]] == ["Run", "mIoU 0-2", "mIoU 3-5", "mIoU old"]
    groups = many.final.groups
    assert table.rows[0][1:4] == [groups["initial"].miou, groups["added"].miou, groups["old"].miou]
    assert table.rows[0][1] != table.rows[0][3]
    for runs in ([("a", two)], [("a", many), ("b", two)]):  # old and new already, or not the same for all
        assert comparison_table(runs).columns[1].name == "mIoU old"


def test_resumed_and_killed_run(run_dir):
    """The later of two evaluations of a step counts; an unfinished last line is passed over."""
    path = run_dir / "metrics.jsonl"
    lines = path.read_text().splitlines()
    again = json.loads(lines[-1])
    again["gap"] = 12.34
    path.write_text("\n".join([*lines, json.dumps(again), '{"kind": "tr']))
    assert load_run(run_dir).final.gap == 12.34
    assert len(load_run(run_dir).steps) == 3
    path.write_text("\n".join([*lines[:3], "{", *lines[3:]]))
    with pytest.raises(UserError, match="line 4 is not JSON"):
        load_run(run_dir)


def test_tables_of_a_run(run_dir):
    run = load_run(run_dir)
    steps, classes = step_table(run.steps, run), class_table(run.steps, run)
    assert [row[0] for row in steps.rows] == ["0", "1", "2"]
    assert [row[4] for row in steps.rows] == [m.groups["all"].miou for m in run.steps]
    assert len(classes.rows) == 6
    row = dict(zip([c.name for c in classes.columns], classes.cells()[4], strict=True))
    assert row["Class"].text == "traffic light"
    assert row["IoU after step 0"].text == "–"
    assert row["Training pixels"].text == "1,004"
    assert row["IoU after step 1"].text == f"{run.steps[1].classes[4].iou:.2f}"


def test_comparison_page(tmp_path):
    first = make_run(tmp_path / "a")
    second = make_run(tmp_path / "b", seed=1, method="other")
    html, page = read(write_comparison_page(tmp_path / "out" / "deep", [("ours <b>", first), ("theirs", second)]))
    best = max((load_run(p).final.groups["all"].miou, n) for n, p in [("ours <b>", first), ("theirs", second)])
    assert f"Highest mean IoU: {best[1]}, {best[0]:.1f}\N{NO-BREAK SPACE}%" in page.text
    assert len(page.images) == 2 * (2 + 2)
    assert "differ in data" not in page.text
    assert 'class="number best"' in html
    assert page.tags.count("details") == 6


def test_comparison_of_unlike_runs_says_so_and_takes_a_table(tmp_path, no_plots):
    first = make_run(tmp_path / "a")
    second = make_run(tmp_path / "b", learned=(0, 0, 1), examples=0)
    _change_scenario(second, labels_sha256="other")
    table = Table([Column("Mine")], [["my own row"]])
    _, page = read(write_comparison_page(tmp_path, [("x", first), ("y", second)], table))
    assert "differ in data" in page.text
    assert "my own row" in page.text
    assert page.images == []
    with pytest.raises(UserError, match="no run to compare"):
        write_comparison_page(tmp_path, [])


@pytest.mark.parametrize(
    ("key", "said"),
    [("labels_sha256", "data"), ("task", "task"), ("setting", "setting"), ("protocol", "protocol"), ("sha256", None)],
)
def test_comparison_minds_data_task_and_setting_but_not_the_steps(key, said, tmp_path, no_plots):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    _change_scenario(second, **{key: "other"})  # joint training differs in the sha256 of its steps alone
    _, page = read(write_comparison_page(tmp_path, [("x", first), ("y", second)]))
    assert ("differ in" in page.text) == (said is not None)
    assert f"differ in {said or ''}" in page.text or said is None


def test_comparisons_say_leaks(tmp_path, no_plots):
    run = make_run(tmp_path / "a")
    steps = json.loads((run / "scenario.json").read_text())["steps"]
    _change_scenario(run, shares=[{"leaked": 0.25, "hidden": 0.0} for _ in steps])
    _, page = read(write_comparison_page(tmp_path, [("x", run), ("y", make_run(tmp_path / "b"))]))
    assert "tested on images they have been trained on" in page.text


def _change_scenario(run_dir, **changes):
    path = run_dir / "scenario.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
