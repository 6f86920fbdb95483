"""Plots are valid, self-contained, repeatable SVG that names what it shows."""

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from fake_run import NASTY, make_run

from faircl.report import plots, style
from faircl.runs.run import TrainRecord, load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load_run(make_run(tmp_path_factory.mktemp("plots") / "run", examples=0))


@pytest.fixture(scope="module")
def svgs(run):
    return {
        "steps": plots.miou_over_steps(run.steps),
        "loss": plots.loss_curves(run.training),
        "runs": plots.comparison_bars([("A & B", run.final), ("C", run.steps[0])]),
        "runs over steps": plots.comparison_over_steps([("A", run.steps), ("A", run.steps[-1:])]),
    }


def texts(svg):
    return ["".join(e.itertext()).strip() for e in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_valid_self_contained_svg(svgs):
    for svg in svgs.values():
        root = ET.fromstring(svg)
        assert root.tag.endswith("svg")
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert not re.search(r"https?://(?!www\.w3\.org/)", svg)
        assert "currentColor" in svg
        assert style.INK not in svg
        assert float(root.get("width").removesuffix("pt")) == pytest.approx(675)  # 900 px


def test_ids_are_unique_within_a_page(svgs):
    ids = [id for svg in svgs.values() for id in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids))


def test_same_numbers_same_bytes(run, svgs):
    assert plots.loss_curves(run.training) == svgs["loss"]


def test_legends_and_boundaries(svgs):
    assert {"old", "new", "all"} <= set(texts(svgs["steps"]))
    assert {"total", "seg", "cluster", "step 0", "step 2"} <= set(texts(svgs["loss"]))
    assert {"A & B", "C", "cat $x$", NASTY} <= set(texts(svgs["runs"]))  # no mathtext
    assert {"A (1)", "A (2)"} <= set(texts(svgs["runs over steps"]))


def test_many_classes_and_steps_get_rows_and_colours():
    assert len(set(style.distinct(21))) == 21
    figure, rows = style.panels(151, per_row=40)
    assert [len(chosen) for _, chosen in rows] == [38, 38, 38, 37]
    assert figure.get_size_inches()[1] > 10


def test_long_curves_are_binned_to_their_means():
    points = plots._binned(np.arange(1000.0), np.arange(1000.0) * 2, most=10)
    assert len(points) == 10
    assert points[0] == (49.5, 99.0)
    assert plots._binned(np.arange(3.0), np.array([1, math.nan, 3]), most=10) == [(0, 1), (2, 3)]


def test_loss_of_all_nan_does_not_break():
    assert "step 0" in texts(plots.loss_curves([TrainRecord(0, 0, 1, math.nan, {})]))


def test_pyplot_and_its_global_state_are_not_used():
    assert not re.search(r"import.*pyplot|plt\.", Path(plots.__file__).read_text())
