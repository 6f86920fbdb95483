"""A figure as an SVG string: inline, self-contained, the same bytes for the same numbers."""

from __future__ import annotations

import io
import re
import warnings
from html import escape

import matplotlib
from matplotlib.figure import Figure

from faircl.report.style import INK


def svg_of(figure: Figure, label: str) -> str:
    """Return a figure as SVG that a screen reader calls by its label; the ink becomes ``currentColor``."""
    out = io.StringIO()
    # All metadata off: a date would change the bytes of equal plots.
    off = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": label}):
        warnings.filterwarnings("ignore", message=".*Glyph .* missing")  # only measured here; the browser has the glyph
        figure.savefig(out, format="svg", transparent=True, metadata=off)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # never referred to, and not unique among the plots of a page
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
