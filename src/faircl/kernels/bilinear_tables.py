"""Tables and tiles for kernels of bilinear upsampling: the cell and the weight of every output pixel.

Neighbouring input values c and c + 1 of an axis of n bound a *cell*. Output pixel i of N (``align_corners=False``) is
in cell c if

    c ≤ (2i + 1)·n / 2N − ½ < c + 1,   c = −1 … n − 1,

and interpolates the values c and c + 1 with weights 1 − f and f, f being its distance from c. In the border cells −1
and n − 1 it takes the nearest value. Cells are computed in integers, without rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
import triton
from torch import Tensor

TILE_CHANNELS = 32
"""Number of channels of a tile of upsampled logits."""
MAX_TILE_PIXELS = 32
"""Largest number of pixels of a tile: some or all of one cell."""


class AxisTable(NamedTuple):
    """Table of one axis, from n input values to N output pixels.

    ``cell_starts`` (n + 2,) int32: the first pixel of every cell from −1 to n − 1, and N. ``weights`` (N,) float32: the
    weight f of the value c + 1 for every pixel. ``cell_of_pixel`` (N,) int32: the cell c of every pixel.
    ``max_cell_size``: number of pixels of the largest cell.
    """

    cell_starts: Tensor
    weights: Tensor
    cell_of_pixel: Tensor
    max_cell_size: int


@cache  # a few kilobytes each; recorded CUDA graphs hold pointers to them
def axis_table(in_size: int, out_size: int, device: torch.device) -> AxisTable:
    """Return the table of an axis from ``in_size`` values to ``out_size`` pixels."""
    pixel = torch.arange(out_size)
    position = (2 * pixel + 1) * in_size - out_size  # from the centre of the first input value, in units of 1 / 2N
    cell = torch.div(position, 2 * out_size, rounding_mode="floor")
    weights = (position - 2 * out_size * cell).double() / (2 * out_size)
    weights = weights.masked_fill(cell < 0, 1.0).masked_fill(cell >= in_size - 1, 0.0)
    cell_starts = torch.searchsorted(cell, torch.arange(-1, in_size + 1))
    max_cell_size = int(cell_starts.diff().max())
    return AxisTable(cell_starts.int().to(device), weights.float().to(device), cell.int().to(device), max_cell_size)


def axis_tables(map: Tensor, size: Sequence[int]) -> tuple[AxisTable, AxisTable]:
    """Return the tables of both axes of a map (…, h, w) that is upsampled to a size (H, W)."""
    return axis_table(map.shape[-2], size[0], map.device), axis_table(map.shape[-1], size[1], map.device)


def cell_grid(logits: Tensor) -> tuple[int, int]:
    """Return the grid of a kernel with one program per cell and image."""
    return (logits.shape[2] + 1) * (logits.shape[3] + 1), len(logits)


def kernel_arguments(logits: Tensor, size: torch.Size) -> tuple[Tensor | int, ...]:
    """Return the arguments that these kernels share: starts of cells, weights of pixels, classes, in and out sizes."""
    classes, in_h, in_w = logits.shape[1:]
    table_h, table_w = axis_tables(logits, size)
    return table_h.cell_starts, table_w.cell_starts, table_h.weights, table_w.weights, classes, in_h, in_w, *size


def cell_tile(logits: Tensor, size: torch.Size) -> dict[str, int]:
    """Return the shape of a tile of upsampled logits: all pixels of a cell if they are at most MAX_TILE_PIXELS."""
    cell_h, cell_w = (triton.next_power_of_2(max(side.max_cell_size, 1)) for side in axis_tables(logits, size))
    tile_w = min(cell_w, MAX_TILE_PIXELS)
    # Lanes along columns and channels in wide tiles, along channels in narrow ones: the fastest layouts measured.
    c_inner = TILE_CHANNELS // 4 if tile_w >= 16 else TILE_CHANNELS
    return {
        "tile_h": min(cell_h, MAX_TILE_PIXELS // tile_w),
        "tile_w": tile_w,
        "c_outer": TILE_CHANNELS // c_inner,
        "c_inner": c_inner,
    }
