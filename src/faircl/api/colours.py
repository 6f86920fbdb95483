"""Colours of a data set's classes: its own where they are published, else the palette of PASCAL VOC."""

from __future__ import annotations

from faircl.data.masks import Colour, voc_palette
from faircl.data.sample import Classes
from faircl.readers.catalog import CAMVID_11, CAMVID_11_PALETTE, CITYSCAPES, CITYSCAPES_PALETTE

_PUBLISHED = {CITYSCAPES: CITYSCAPES_PALETTE, CAMVID_11: CAMVID_11_PALETTE}


def class_colours(classes: Classes) -> list[Colour]:
    """Return the colour of every class, by id."""
    first = int(classes.background)
    palette = _PUBLISHED.get(classes.names[first:])
    if palette is None:
        palette, first = voc_palette(len(classes.names)), 0
    own = [(int(r), int(g), int(b)) for r, g, b in palette]
    return [(0, 0, 0)] * first + own
