"""How often every class occurs in training and in the evaluated images, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from faircl.report.run_view import RunView


class Share(NamedTuple):
    """A class's share of the pixels in percent, as text, and the width of its bar; empty where it is not known."""

    text: str
    width: float


class DistributionRow(NamedTuple):
    """A class: name, its share of the evaluated pixels and of the training pixels."""

    name: str
    evaluated: Share
    training: Share


def distribution(view: RunView) -> list[DistributionRow]:
    """Return the classes, the most frequent first; bars end at 100 % and begin a decade below the rarest share."""
    evaluated = _shares({c.id: c.pixels for c in view.classes})
    known = view.run.train_pixels
    training = _shares({c.id: known[c.id] for c in view.classes if c.id in known})
    found = [value for shares in (evaluated, training) for value in shares.values() if value > 0]
    bottom = math.floor(math.log10(min(found, default=1.0))) - 0.15  # the least bar keeps some width

    def share(value: float | None) -> Share:
        if value is None:
            return Share("", 0)
        if value == 0:
            return Share("none", 0)
        return Share(readable(value), round(100 * (math.log10(value) - bottom) / (2 - bottom), 1))

    return [DistributionRow(c.name, share(evaluated.get(c.id)), share(training.get(c.id))) for c in view.classes]


def readable(value: float) -> str:
    """Return a percentage with two significant digits: "43", "4.3", "0.043"."""
    digits = max(0, 1 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{min(digits, 5)}f}"


def _shares(pixels: Mapping[int, int]) -> dict[int, float]:
    total = sum(pixels.values())
    return {id: 100 * count / total for id, count in pixels.items()} if total else {}
