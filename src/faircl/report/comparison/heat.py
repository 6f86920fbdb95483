"""Per-class parts of the page: a heat map of classes × labels, and bars of differences with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np

from faircl.fairness.difference import ClassChange
from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.tables import class_ious
from faircl.tables import show

_COLOURS = matplotlib.colormaps["cividis"]  # even in lightness, and alike for colour-blind readers
WIDE = 200  # units of a bar's drawing


class HeatCell(NamedTuple):
    """An IoU as text, the colour of its cell and of its text."""

    text: str
    value: float
    background: str
    ink: str


class Bar(NamedTuple):
    """A class's difference and interval as text, and where they are drawn, in units from the left of WIDE."""

    name: str
    difference: float
    text: str
    interval: str
    mark: str
    start: float
    width: float
    low: float | None
    high: float | None


def heat_map(comparison: Comparison) -> list[tuple[str, int, list[HeatCell]]]:
    """Return every class, most frequent first: its name, pixels and the IoU of every label."""
    known = {c.id: c for _, run in reversed(comparison.runs) for c in run.final.classes}
    ious = class_ious(comparison)
    return [
        (c.name, c.pixels, [_cell(ious[row.label].get(c.id, math.nan)) for row in comparison.rows])
        for c in sorted(known.values(), key=lambda c: -c.pixels)
    ]


def difference_bars(changes: Sequence[ClassChange]) -> tuple[list[Bar], float]:
    """Return a bar per class, the largest gain first and the largest loss last, and the half width of the axis."""
    known = sorted((one for one in changes if not math.isnan(one.difference)), key=lambda one: -one.difference)
    ends = [abs(end) for one in known for end in (one.difference, *(one.interval or ()))]
    axis = _round_up(max(ends, default=1.0))

    def place(value: float) -> float:
        return round(WIDE / 2 * (1 + value / axis), 1)

    bars = []
    for one in known:
        start, end = sorted((place(0), place(one.difference)))
        low, high = one.interval or (None, None)
        mark = ("better" if one.difference > 0 else "worse") if one.significant else ""
        interval = "" if low is None or high is None else f"{_signed(low)} to {_signed(high)}"
        places = [None if value is None else place(value) for value in (low, high)]
        bars.append(Bar(one.name, one.difference, _signed(one.difference), interval, mark, start, end - start, *places))
    return bars, axis


def _cell(value: float) -> HeatCell:
    if math.isnan(value):
        return HeatCell(show(value), -1.0, "transparent", "inherit")
    red, green, blue, _ = _COLOURS(value / 100)
    ink = "#000000" if _luminance(red, green, blue) > 0.18 else "#ffffff"  # where black and white contrast alike
    return HeatCell(show(value, 1), value, matplotlib.colors.to_hex((red, green, blue)), ink)


def _luminance(*colour: float) -> float:
    """Relative luminance of an sRGB colour, as WCAG 2 defines it."""
    channels = np.array(colour)
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def _signed(value: float) -> str:
    shown = show(value, 1)
    return f"+{shown}" if value > 0 and shown != "0.0" else shown.replace("-", "−")


def _round_up(value: float) -> float:
    return next(step for step in (1, 2, 5, 10, 20, 30, 40, 50, 75, 100, math.inf) if value <= step)
