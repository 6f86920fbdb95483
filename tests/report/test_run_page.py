"""The page of a run as a file: content, escaping, nothing from elsewhere, whatever optional part is missing."""

import base64
import hashlib
import html as html_module
import json
import re
import shutil
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
from fake_run import NASTY, make_run
from PIL import Image
from report_runs import AWKWARD, make_report_run

from faircl.errors import UserError
from faircl.report import plots
from faircl.report.page import write_run_page
from faircl.runs.run import load_run


class Outline(HTMLParser):
    """Checks that tags nest; collects visible texts, tags, and the content of scripts by id."""

    VOID = frozenset({"meta", "img", "br", "link", "input"})

    def __init__(self, html):
        super().__init__()
        self.stack, self.tags, self.images, self.text, self.scripts, self.policy = [], [], [], "", {}, ""
        self.feed(html)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attrs = dict(attrs)
        if tag == "img":
            self.images.append(attrs)
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag not in self.VOID:
            self.stack.append(tag)
        if tag == "script":
            self.current = attrs.get("id", "code")

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            self.scripts[self.current] = self.scripts.get(self.current, "") + data
        elif self.stack and self.stack[-1] != "style":
            self.text += data


def read(path):
    html = path.read_text(encoding="utf-8")
    # Nothing is fetched: no links, scripts or styles from elsewhere; w3.org names XML namespaces only.
    assert not re.search(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink))", html)
    assert not re.search(r'(?:src|href)="(?!data:|#)', html)
    assert "<b>&" not in html
    assert not list(path.parent.glob(".*part"))
    return html, Outline(html)


@pytest.fixture(autouse=True)
def no_plots(monkeypatch):
    """Drawing takes most of the time of a page, and has its own tests."""
    for name in ("miou_over_steps", "loss_curves"):
        monkeypatch.setattr(plots, name, lambda _: "<svg></svg>")


@pytest.fixture
def run_dir(tmp_path):
    return make_report_run(tmp_path / "run", 7, 3, 8)


def test_content(run_dir):
    path = write_run_page(run_dir)
    assert path == run_dir / "report.html"
    _, page = read(path)
    run = load_run(run_dir)
    for metrics in run.steps:
        for value in (metrics.groups["all"].miou, metrics.gap, metrics.error_gap, metrics.rarest_third):
            assert f"{value:.2f}" in page.text
        assert all(f"{c.iou:.2f}" in page.text for c in metrics.classes)
    final = run.final
    assert f"a mean IoU of {final.groups['all'].miou:.1f}\N{NO-BREAK SPACE}%" in page.text
    assert f"{final.worst.name} is served worst: {final.worst.iou:.0f} of 100" in page.text
    assert "fair with tiny, trained in 3 steps" in page.text
    assert "not of the minimum" in page.text
    for heading in ("Classes", "Steps", "Confusions", "Gallery", "Measures", "Class distribution", "Training"):
        assert heading in page.text
    for measure in ("Gini", "Jain", "Rank correlation", "Calibration error", "small", "large"):
        assert measure in page.text
    assert "c0ffee" in page.text
    assert page.tags.count("details") == 3
    assert len(page.images) == 8
    assert "left no record" not in page.text


def test_awkward_names_are_text_and_the_script_is_the_only_one(run_dir):
    html, page = read(write_run_page(run_dir))
    for name in AWKWARD:
        assert name in page.text
        assert name not in html or not re.search("[<\"']", name)
        assert html_module.escape(name) in html or name.startswith('a "')
    code = page.scripts.pop("code")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy
    assert page.policy.startswith("default-src 'none'")
    data = json.loads(page.scripts["report-data"])
    assert [c["name"] for c in data["gallery"]["paints"]][1:4] == list(AWKWARD)
    assert data["confusion"]["names"][1:4] == list(AWKWARD)
    assert "<" not in page.scripts["report-data"]


def test_masks_of_the_gallery_are_those_of_the_run(run_dir):
    _, page = read(write_run_page(run_dir))
    data = json.loads(page.scripts["report-data"])["gallery"]
    for k, image in enumerate(load_run(run_dir).gallery()):
        saved = json.loads(page.scripts[f"picture-{k}"])
        assert set(saved["masks"]) == {"truth", "0", "1", "2"}
        for layer, path in {"truth": image.truth, "2": image.predictions[2]}.items():
            indices = np.frombuffer(zlib.decompress(base64.b64decode(saved["masks"][layer])), np.uint8)
            stored = np.array(Image.open(path))
            expected = np.where(stored == 255, len(data["paints"]) - 1, stored)
            np.testing.assert_array_equal(indices.reshape(saved["height"], saved["width"]), expected)
    assert data["paints"][-1]["name"] == "ignored"
    assert data["depth"] == 1


def test_runs_of_earlier_versions_say_what_is_missing(tmp_path):
    """No record, no gallery: examples take its place, and charts that need a record are left out."""
    _, page = read(write_run_page(make_run(tmp_path / "run")))
    assert "step 0, step 1 and step 2 left no record image by image" in page.text
    assert "Confusions" not in page.text
    assert "95" not in re.sub(r"\d*\.\d+", "", page.text.split("Classes")[0])  # no interval
    assert len(page.images) == 2
    assert "example 1" in page.text
    assert page.text.count(NASTY) >= 5


def test_one_step_without_examples(tmp_path):
    _, page = read(write_run_page(make_run(tmp_path / "run", learned=(0, 0, 0), examples=0)))
    assert "trained in 1 step," in page.text
    assert page.images == []
    assert "No image was kept" in page.text
    assert page.tags.count("figure") == 1  # no curve over a single step
    assert "Forgetting" not in page.text.split("Classes")[0]


def test_joint_run(tmp_path):
    _, page = read(write_run_page(make_run(tmp_path / "run", joint=True)))
    assert "on the old classes" in page.text
    assert "of 3 steps" not in page.text


def test_a_run_in_training_shows_the_steps_so_far(run_dir):
    path = run_dir / "metrics.jsonl"
    lines = [line for line in path.read_text().splitlines() if json.loads(line)["step"] < 2]
    path.write_text("\n".join(lines) + "\n")
    _, page = read(write_run_page(run_dir))
    assert "trained in 2 of 3 steps" in page.text
    assert "This page shows 2 of 3 steps: the run has not finished the others." in page.text


@pytest.mark.parametrize(
    "missing", ["config.yaml", "environment.json", "scenario.json", "steps", "gallery/0.truth.png", "gallery"]
)
def test_missing_parts(run_dir, missing):
    path = run_dir / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    _, page = read(write_run_page(run_dir))
    assert "mean IoU of" in page.text


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        ("steps/02/evaluation.npz", "Intervals, confusions and where lost pixels went are missing for step 2."),
        ("gallery/0.image.png", "Left out of the gallery: Gallery image"),
        ("gallery/0.step01.png", "Left out of the gallery: Mask"),
        ("gallery/gallery.json", "Left out of the gallery: Cannot read"),
    ],
)
def test_damaged_parts_are_left_out_and_named(run_dir, damaged, text):
    (run_dir / damaged).write_bytes(b"{")
    _, page = read(write_run_page(run_dir))
    assert text in page.text
    assert str(run_dir / damaged) in page.text
    assert len(page.images) == {"gallery.json": 0, "evaluation.npz": 8}.get(damaged.rpartition("/")[2], 7)


def test_missing_pictures_are_counted(run_dir):
    for k in range(8):
        (run_dir / "gallery" / f"{k}.image.png").unlink()
    _, page = read(write_run_page(run_dir))
    assert "check that it exists. (7 more images likewise)" in page.text
    assert "No image was kept" not in page.text
    (run_dir / "gallery" / "gallery.json").write_text('{"images": 3}')
    _, page = read(write_run_page(run_dir))
    assert """gallery.json is damaged ('int' object is not iterable); expected a list "images" of""" in page.text


def test_not_a_run(tmp_path):
    with pytest.raises(UserError, match=r"no metrics\.jsonl"):
        write_run_page(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="no evaluation"):
        write_run_page(tmp_path)


def test_domains_and_leaks(tmp_path):
    run = make_run(tmp_path / "a")
    path = run / "scenario.json"
    tree = json.loads(path.read_text())
    steps = [step | {"domains": ["ulm", "jena"]} for step in tree["steps"]]
    shares = [{"leaked": 0.25, "hidden": 0.0} for _ in steps]
    path.write_text(json.dumps(tree | {"steps": steps, "shares": shares, "protocol": "plop"}))
    _, page = read(write_run_page(run))
    assert "25.0\N{NO-BREAK SPACE}% of the last step's test images have been trained on." in page.text
    assert "Scored by the convention full." in page.text
    assert "domains: ulm, jena" in page.text
    assert "(by domain, plop)" in page.text


def test_same_run_same_page(run_dir, monkeypatch):
    monkeypatch.undo()  # plots are drawn
    first = write_run_page(run_dir).read_bytes()
    assert write_run_page(run_dir).read_bytes() == first
    assert read(run_dir / "report.html")[1].tags.count("figure") == 2
