"""Plots of comparisons: labels never overlap, every run is named, the same numbers give the same bytes."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from recorded_run import SCRIPT

from faircl.report import style
from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.plots import over_steps, pareto_figure, pareto_plot, spread_out
from faircl.report.comparison.rows import Row


def comparison(count, seed=0, near=False):
    generator = np.random.default_rng(seed)
    rows = []
    for k in range(count):
        miou, std = (50 + generator.normal(0, 0.01 if near else 15), 20 + generator.normal(0, 0.01 if near else 5))
        mean = {"all": float(miou), "std": float(std)}
        rows.append(Row(f"method {k} & a rather long name of it", ("r",), mean, {"all": 0.5, "std": 0.0}, ()))
    labels = [row.label for row in rows]
    return Comparison((), tuple(rows), (), None, labels[0], front={"std": tuple(labels[:2])})


def boxes(figure):
    FigureCanvasAgg(figure).draw()
    column = figure.axes[1]
    return [text.get_window_extent() for text in column.texts], figure.bbox


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("count", [2, 5, 12, 20])
def test_labels_do_not_overlap_and_stay_inside(count, near):
    with style.matplotlib.rc_context(style.STYLE):
        found, whole = boxes(pareto_figure(comparison(count, near=near), "std", "STD"))
    assert len(found) == count
    assert not [(a, b) for a, b in combinations(found, 2) if a.overlaps(b)]
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1 for box in found)


def test_labels_are_pushed_down_no_further_than_needed():
    wanted = np.array([0.9, 0.89, 0.88, 0.1])
    assert spread_out(wanted, 0.1) == pytest.approx([0.9, 0.8, 0.7, 0.1])
    assert spread_out(np.array([0.05, 0.04, 0.0]), 0.1) == pytest.approx([0.2, 0.1, 0.0])
    assert spread_out(np.zeros(5), 0.9) == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    assert len(spread_out(np.zeros(0), 0.1)) == 0


def test_svg_is_valid_repeatable_and_names_every_run():
    made = comparison(3)
    svg = pareto_plot(made)
    assert svg == pareto_plot(made)
    root = ET.fromstring(svg)
    texts = ["".join(e.itertext()).strip() for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sum("(front)" in text for text in texts) == 2
    assert any(text.startswith("method 2 & a rather") for text in texts)
    assert root.get("aria-label")
    assert "currentColor" in svg
    assert not re.search(r"https?://(?!www\.w3\.org/)", svg)
    assert style.INK not in svg


def test_hostile_labels_are_text():
    rows = [Row(SCRIPT, ("r",), {"all": k, "std": k}, {"all": 0.0, "std": 0.0}, ()) for k in (1.0, 2.0)]
    assert "<script" not in pareto_plot(Comparison((), tuple(rows), (), None, SCRIPT))
    assert over_steps(Comparison((), (), (), None)).startswith("<svg")
