"""Sums over the rows of a matrix: the gradient of a bias.

torch gives such a sum few threads, and a transformer has hundreds of them. Here every program adds up some rows; torch
adds up the programs, in a fixed order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from faircl.kernels.row_tiles import rows_of

COLUMNS = 64
"""Columns of a tile, at most."""


@triton.jit
def _add_up(x, parts, rows, width, tile_rows: tl.constexpr, tile_width: tl.constexpr):
    """Every n-th tile of rows: their sum, (programs, C)."""
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    total = tl.zeros((tile_rows, tile_width), tl.float32)
    for start in range(tl.program_id(0) * tile_rows, rows, tl.num_programs(0) * tile_rows):
        row = (start + tl.arange(0, tile_rows)).to(tl.int64)
        there = (row < rows)[:, None] & (channel < width)[None, :]
        total += tl.load(x + row[:, None] * width + channel[None, :], mask=there, other=0.0).to(tl.float32)
    tl.store(parts + tl.program_id(0) * width + channel, tl.sum(total, 0), mask=channel < width)


def column_sums(x: Tensor) -> Tensor:
    """Return the sums (C,) in float32 over the rows of x (N, C), one after the other in memory."""
    cut = rows_of(x, x.shape[1], COLUMNS)
    parts = torch.empty((cut.adders[0], cut.width), dtype=torch.float32, device=x.device)
    _add_up[cut.adders](x, parts, cut.rows, cut.width, **cut.tile)
    return parts.sum(0)
