"""Report pages of fake run folders: content, escaping, offline, whatever optional part is missing."""

import base64
import io
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from fake_run import NASTY, make_run
from PIL import Image

from faircl.errors import UserError
from faircl.report import plots
from faircl.report.page import write_run_page
from faircl.report.run_tables import class_table, step_table
from faircl.runs.run import load_run


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
    for name in ("class_iou_bars", "miou_over_steps", "loss_curves"):
        monkeypatch.setattr(plots, name, lambda _: "<svg></svg>")


def test_run_page(run_dir):
    path = write_run_page(run_dir)
    assert path == run_dir / "report.html"
    html, page = read(path)
    run = load_run(run_dir)
    for metrics in run.steps:
        for value in (metrics.groups["all"].miou, metrics.gap, metrics.error_gap, metrics.rarest_third):
            assert f"{value:.2f}" in page.text
        assert all(f"{c.iou:.2f}" in page.text for c in metrics.classes)
    assert "12.2" in page.text
    assert f"a mean IoU of {run.final.groups['all'].miou:.1f}\N{NO-BREAK SPACE}%" in page.text
    assert "fair with tiny, trained in 3 steps" in page.text
    assert "c0ffee" in page.text
    assert "torch" in page.text
    assert f"note: {NASTY}" in page.text
    assert html.count("&lt;b&gt;&amp;") >= 5  # tables, legend, plot, configuration, scenario
    assert page.tags.count("figure") == 3
    assert page.tags.count("details") == 3
    assert len(page.images) == 2 * (2 + 3)
    assert all(image["alt"] for image in page.images)


def test_pictures_are_painted_in_the_colours_of_the_legend(run_dir, no_plots):
    html, page = read(write_run_page(run_dir))
    truth = next(image for image in page.images if image["alt"] == "Truth of example 1")
    data = base64.b64decode(truth["src"].removeprefix("data:image/png;base64,"))
    pixels = np.array(Image.open(io.BytesIO(data)).convert("RGB")).reshape(-1, 3)
    painted = {"#{:02x}{:02x}{:02x}".format(*colour) for colour in np.unique(pixels, axis=0).tolist()}
    legend = dict(re.findall(r'<span style="background:(#\w+)"></span>([^<]*)</li>', html))
    assert set(legend) == painted
    assert legend["#000000"] == "background"
    assert legend["#e0e0c0"] == "ignored"
    assert truth["class"] == "sharp"


def test_one_step_without_examples(tmp_path, no_plots):
    run = make_run(tmp_path / "run", learned=(0, 0, 0), examples=0)
    _, page = read(write_run_page(run))
    assert "trained in 1 step," in page.text
    assert page.images == []
    assert page.tags.count("figure") == 2  # no curve over a single step
    assert "lost" not in page.text


def test_joint_run(tmp_path, no_plots):
    run = make_run(tmp_path / "run", joint=True)
    _, page = read(write_run_page(run))
    assert "on the old classes" in page.text
    assert "After step 2" in page.text


@pytest.mark.parametrize(
    "missing", ["config.yaml", "environment.json", "scenario.json", "steps", "examples/0.truth.png"]
)
def test_missing_parts(run_dir, missing, no_plots):
    path = run_dir / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    _, page = read(write_run_page(run_dir))
    assert "mean IoU of" in page.text


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


def test_not_a_run(tmp_path):
    with pytest.raises(UserError, match=r"no metrics\.jsonl"):
        write_run_page(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="no evaluation"):
        write_run_page(tmp_path)


def test_tables_of_a_run(run_dir):
    run = load_run(run_dir)
    steps, classes = step_table(run), class_table(run)
    assert [row[0] for row in steps.rows] == ["0", "1", "2"]
    assert [row[4] for row in steps.rows] == [m.groups["all"].miou for m in run.steps]
    assert len(classes.rows) == 6
    row = dict(zip([c.name for c in classes.columns], classes.cells()[4], strict=True))
    assert row["Class"].text == "traffic light"
    assert row["IoU after step 0"].text == "–"
    assert row["Training pixels"].text == "1,004"
    assert row["IoU after step 1"].text == f"{run.steps[1].classes[4].iou:.2f}"


def test_pages_say_convention_domains_and_leaks(tmp_path, no_plots):
    run = make_run(tmp_path / "a")
    _, page = read(write_run_page(run))
    assert "Scored by the convention full." in page.text
    assert "trained on" not in page.text.replace("trained on it", "")
    steps = json.loads((run / "scenario.json").read_text())["steps"]
    shares = [{"leaked": 0.25, "hidden": 0.0} for _ in steps]
    steps = [step | {"domains": ["ulm", "jena"]} for step in steps]
    _change_scenario(run, steps=steps, shares=shares, protocol="plop")
    _, page = read(write_run_page(run))
    assert "25.0\N{NO-BREAK SPACE}% of the last step's test images have been trained on." in page.text
    assert "domains: ulm, jena" in page.text
    assert "(by domain, plop)" in page.text


def _change_scenario(run_dir, **changes):
    path = run_dir / "scenario.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_same_run_same_page(run_dir, no_plots):
    assert write_run_page(run_dir).read_bytes() == write_run_page(run_dir).read_bytes()
