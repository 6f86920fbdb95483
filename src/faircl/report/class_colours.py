"""The classes of a page in the colours of their data, and which of them share one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from faircl.data.masks import IGNORE_COLOUR, full_palette
from faircl.labels import BACKGROUND
from faircl.runs.run import Run

CLOSE = 24.0
"""Colours nearer than this in sRGB, where each channel counts to 255, are taken for the same."""


class Paint(NamedTuple):
    """A class as pictures show it: raw id (−1 for ignored pixels), name, colour, and the name that has its colour.

    ``hatched``: pictures put stripes on it, because an earlier class has nearly the same colour.
    """

    id: int
    name: str
    colour: str
    background: bool
    same_as: str | None

    @property
    def hatched(self) -> bool:
        """Whether an earlier class has the colour too."""
        return self.same_as is not None


def paints(run: Run, further: Iterable[int] = ()) -> list[Paint]:
    """Return how every class of a run is painted, by raw id; ``further`` are ids that occur in pictures.

    Ignored pixels come last.
    """
    names = run.class_names
    ids = sorted({*names, *further})
    palette = full_palette(run.palette, max(ids, default=0) + 2)
    has_background = run.final.background and BACKGROUND in names
    colours = palette[ids].astype(np.float64)
    found = []
    for k, id in enumerate(ids):
        near = np.linalg.norm(colours[:k] - colours[k], axis=1) < CLOSE
        other = ids[int(near.argmax())] if near.any() else None
        found.append(
            Paint(
                id,
                names.get(id, f"id {id}"),
                _css(palette[id]),
                has_background and id == BACKGROUND,
                None if other is None else names.get(other, f"id {other}"),
            )
        )
    return [*found, Paint(-1, "ignored", _css(IGNORE_COLOUR), False, None)]


def _css(colour: Iterable[int]) -> str:
    return f"#{bytes(int(channel) for channel in colour).hex()}"
