"""Style of all plots: ink, colours, rows of bars, legend; without torch, so that plots of data start quickly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 9.375  # inches; 900 px in a browser
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""

INK = "#010203"  # in pages it stands for currentColor, which matplotlib does not know
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: searchable, small, and any script has glyphs in a browser
    "text.parse_math": False,  # a class may be called "$"
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


def panels(count: int, per_row: int) -> tuple[Figure, list[tuple[Axes, range]]]:
    """Figure with as many rows of bars as it takes to keep class names readable, and the bars of each row."""
    rows = max(1, math.ceil(count / per_row))
    size = max(1, math.ceil(count / rows))
    figure = Figure(figsize=(WIDTH, 0.6 + 2.9 * rows), layout="constrained")
    axes = figure.subplots(rows, squeeze=False)[:, 0]
    for one in axes:
        one.set_xlim(-0.7, size - 0.3)  # the last, shorter row keeps the bar width of the others
    return figure, [(one, range(k * size, min(count, (k + 1) * size))) for k, one in enumerate(axes)]


def name_bars(axes: Axes, names: Sequence[str]) -> None:
    """Write the classes' names below their bars, turned as far as it takes to fit."""
    shown = [short(name, 22) for name in names]
    flat = len(shown) <= 8 and max((len(name) for name in shown), default=0) <= 12
    axes.set_xticks(
        range(len(shown)),
        shown,
        rotation=0 if flat else 90 if len(shown) > 25 else 45,
        ha="center" if flat or len(shown) > 25 else "right",
        rotation_mode="default" if flat or len(shown) > 25 else "anchor",
        fontsize=9 if len(shown) <= 25 else 7.5,
    )
    axes.tick_params(axis="x", length=0)


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Legend above the plot, in as many columns as its labels leave room for, read row by row."""
    labels = [short(str(handle.get_label()), 60) for handle in handles]
    columns = max(1, min(len(handles), 128 // (8 + max((len(label) for label in labels), default=0))))
    order = [k for column in range(columns) for k in range(column, len(handles), columns)]  # it fills columns first
    figure.legend(
        [handles[k] for k in order],
        [labels[k] for k in order],
        loc="outside upper left",
        ncols=columns,
        fontsize=8.5,
    )


def distinct(count: int) -> list[str]:
    """Distinct colours; beyond the named ones a perceptually even ramp, which colour-blind readers can order."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    ramp = matplotlib.colormaps["viridis"](np.linspace(0.12, 0.98, count))
    return [matplotlib.colors.to_hex(colour) for colour in ramp]


def short(text: str, most: int) -> str:
    """Cut a text to so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
