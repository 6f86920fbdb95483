"""Colours of charts in a page: told apart by colour-blind readers, with readable text on every one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from numpy.typing import NDArray

OLD, NEW = "#0072b2", "#e69f00"
"""Bars of old and of new classes, from Okabe and Ito's palette."""
FLOW = {"kept": "#0072b2", "background": "#9a9a9a", "older": "#e69f00", "newer": "#a3306f", "none": "#222222"}
"""Where the pixels of a class went."""
LEVELS = 21


class Shade(NamedTuple):
    """Background and text colour of a cell, as CSS."""

    paper: str
    ink: str


def heat_levels() -> list[Shade]:
    """Viridis in ``LEVELS`` shades, for 0 to 100 percent."""
    return _shades(matplotlib.colormaps["viridis"](np.linspace(0, 1, LEVELS))[:, :3])


def confusion_levels(low: str, high: str) -> list[Shade]:
    """Shades between two colours, for shares of nothing to all."""
    return _shades(np.linspace(matplotlib.colors.to_rgb(low), matplotlib.colors.to_rgb(high), LEVELS))


def contrast(first: Sequence[float] | NDArray[np.float64], second: Sequence[float] | NDArray[np.float64]) -> float:
    """WCAG's contrast ratio (L₁ + 0.05) / (L₂ + 0.05) of two sRGB colours in [0, 1], the lighter one first."""
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _shades(colours: NDArray[np.float64]) -> list[Shade]:
    inks = ("#000000", "#ffffff")  # one of both always has a contrast of at least √21 = 4.58
    return [
        Shade(matplotlib.colors.to_hex(one), max(inks, key=lambda ink: contrast(one, matplotlib.colors.to_rgb(ink))))
        for one in colours
    ]


def _luminance(colour: Sequence[float] | NDArray[np.float64]) -> float:
    values = np.asarray(colour, np.float64)
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
