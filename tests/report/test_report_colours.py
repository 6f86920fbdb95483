"""Colours of a page: told apart by colour-blind readers, readable text on them, and marks where classes share one."""

from itertools import combinations, pairwise

import matplotlib
import numpy as np
import pytest
from report_runs import make_report_run

from faircl.report.class_colours import paints
from faircl.report.scales import FLOW, NEW, OLD, confusion_levels, contrast, heat_levels
from faircl.report.style import COLOURS
from faircl.runs.run import load_run

# Machado, Oliveira and Fernandes (2009), severity 1, in linear RGB
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(colour, sight):
    """CIE L*a*b* of a colour as somebody sees it."""
    srgb = np.array(matplotlib.colors.to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SIGHT[sight]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    f = np.cbrt(xyz / [0.9505, 1, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("colours", [(OLD, NEW), tuple(FLOW.values()), COLOURS[:5]], ids=["bars", "flow", "lines"])
def test_chart_colours_are_told_apart(sight, colours):
    """ΔE*ab of 10 is a difference seen at a glance; charts also have hatches, labels and numbers."""
    for one, other in combinations(colours, 2):
        assert np.linalg.norm(lab(one, sight) - lab(other, sight)) > 10, (one, other)


@pytest.mark.parametrize("sight", SIGHT)
def test_the_heat_map_is_read_by_lightness_alone(sight):
    """Neighbouring shades grow lighter, whatever the sight."""
    light = [lab(shade.paper, sight)[0] for shade in heat_levels()]
    assert all(b > a for a, b in pairwise(light))


@pytest.mark.parametrize(
    "levels", [heat_levels(), confusion_levels("#ffffff", "#083d6b"), confusion_levels("#14171b", "#a6d6f7")]
)
def test_text_on_every_shade_is_readable(levels):
    to_rgb = matplotlib.colors.to_rgb
    assert all(contrast(to_rgb(shade.paper), to_rgb(shade.ink)) >= 4.5 for shade in levels)


def test_contrast_of_wcag():
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    assert contrast([0.5] * 3, [0.5] * 3) == 1


def test_classes_of_one_colour_are_marked(tmp_path):
    run = load_run(make_report_run(tmp_path / "run", 6, 1, 1, gallery=False))
    run.scenario_tree["colours"] = ["#000000", "#080808", "#ff0000", "#00ff00", "#fe0500", "#0000ff"]
    found = paints(run, [9])
    assert [paint.same_as for paint in found[:6]] == [None, "background", None, None, found[2].name, None]
    assert [paint.hatched for paint in found[:6]] == [False, True, False, False, True, False]
    assert found[6].name == "id 9"
    assert (found[-1].id, found[-1].name, found[-1].colour) == (-1, "ignored", "#e0e0c0")
    assert [paint.background for paint in found].count(True) == 1
