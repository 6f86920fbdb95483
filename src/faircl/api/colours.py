"""Colours of a data set's classes: its own where it has some or they are published, else those of PASCAL VOC."""

from __future__ import annotations

from collections.abc import Sequence

from faircl.data.masks import Colour, Palette, palette_of, voc_palette
from faircl.data.sample import Classes
from faircl.readers.catalog import CAMVID_11, CAMVID_11_PALETTE, CITYSCAPES, CITYSCAPES_PALETTE

_PUBLISHED = {CITYSCAPES: CITYSCAPES_PALETTE, CAMVID_11: CAMVID_11_PALETTE}


def class_colours(classes: Classes, own: Sequence[str] = ()) -> list[Colour]:
    """Return the colour of every class, by id; ``own`` are those of the data, as "#rrggbb"."""
    if (given := palette_of(own)) is not None:
        return _tuples(given)
    first = int(classes.background)
    palette = _PUBLISHED.get(classes.names[first:])
    if palette is None:
        palette, first = voc_palette(len(classes.names)), 0
    return [(0, 0, 0)] * first + _tuples(palette)


def _tuples(palette: Palette) -> list[Colour]:
    return [(int(r), int(g), int(b)) for r, g, b in palette]
