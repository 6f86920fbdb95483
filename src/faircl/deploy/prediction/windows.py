"""Overlapping windows of a large image, and the part of each that counts."""

from __future__ import annotations

from typing import NamedTuple

from faircl.deploy.prediction.options import STEP


class Window(NamedTuple):
    """Pixels ``start`` to ``stop`` along one axis are read, ``first`` to ``last`` of them count."""

    start: int
    stop: int
    first: int
    last: int


def windows(length: int, tile: int, overlap: int) -> list[Window]:
    """Cover an axis with windows of ``tile`` pixels that share at least ``overlap`` with each neighbour.

    Where two windows overlap, each counts up to the middle: a pixel that counts is at least ``overlap`` / 2 away from
    every border of its window that is not one of the image. All windows start at multiples of `STEP`, so that the
    cells of a network's strides lie where they lie in the whole image. The last one reaches the end of the image; it
    is up to `STEP` − 1 pixels shorter than the others.
    """
    if length <= tile:
        return [Window(0, length, 0, length)]
    last = -(-(length - tile) // STEP) * STEP  # rounded up
    starts = [*range(0, last, tile - overlap), last]
    stops = [*(start + tile for start in starts[:-1]), length]
    cuts = [0, *((stop + start) // 2 for stop, start in zip(stops[:-1], starts[1:], strict=True)), length]
    return [Window(*one) for one in zip(starts, stops, cuts[:-1], cuts[1:], strict=True)]
