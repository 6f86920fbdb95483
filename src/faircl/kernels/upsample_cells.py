"""Cells: which pixels of an upsampled map lie between which of its logits, and how they mix them.

With centres half a pixel inside the border (``align_corners=False``), pixel i of N lies in cell c of n where

    c ≤ (2i + 1)·n / 2N − ½ < c + 1,   c = −1 … n − 1,

and mixes rows c and c + 1 by 1 − f and f, f the distance from c; beyond the border the last row alone counts. Integers
tell exactly which cell a pixel is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor


class Axis(NamedTuple):
    """One axis of an upsampled map of N pixels from n logits.

    ``starts`` (n + 2,) int32: the first pixel of every cell, and N. ``weights`` (N,) float32: the weight of a pixel's
    second row. ``cells`` (N,) int32: the cell of every pixel. ``longest``: pixels of the largest cell.
    """

    starts: Tensor
    weights: Tensor
    cells: Tensor
    longest: int


@cache  # a few kilobytes each, and recorded networks point to them
def axis(small: int, large: int, device: torch.device) -> Axis:
    """Return the cells of an axis."""
    pixel = torch.arange(large)
    place = (2 * pixel + 1) * small - large  # in units of 1 / 2N, from the first logit's centre
    cell = torch.div(place, 2 * large, rounding_mode="floor")
    weights = (place - 2 * large * cell).double() / (2 * large)
    weights = weights.masked_fill(cell < 0, 1.0).masked_fill(cell >= small - 1, 0.0)
    starts = torch.searchsorted(cell, torch.arange(-1, small + 1))
    longest = int(starts.diff().max())
    return Axis(starts.int().to(device), weights.float().to(device), cell.int().to(device), longest)


def axes(map: Tensor, size: Sequence[int]) -> tuple[Axis, Axis]:
    """Return both axes of a map (…, h, w) that is upsampled to a size (H, W)."""
    return axis(map.shape[-2], size[0], map.device), axis(map.shape[-1], size[1], map.device)
