"""Column sums of a matrix, which are the gradient of a bias.

torch uses few threads for such a sum, and a transformer has hundreds of them. Here every program sums some of the rows,
and torch sums the results of the programs, in a fixed order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from faircl.kernels.row_tiles import row_tiling

MAX_COLUMNS = 64
"""Largest number of columns of a tile."""


# Names: c column; num_c is the number of columns; ``partial`` are the results of every program.


@triton.jit
def _partial_sums(x, partial, rows, num_c, tile_rows: tl.constexpr, tile_width: tl.constexpr):
    """Sum every n-th tile of rows, n being the number of programs: partial (programs, columns)."""
    column = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    total = tl.zeros((tile_rows, tile_width), tl.float32)
    for start in range(tl.program_id(0) * tile_rows, rows, tl.num_programs(0) * tile_rows):
        row = (start + tl.arange(0, tile_rows)).to(tl.int64)
        mask = (row < rows)[:, None] & (column < num_c)[None, :]
        total += tl.load(x + row[:, None] * num_c + column[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(partial + tl.program_id(0) * num_c + column, tl.sum(total, 0), mask=column < num_c)


def column_sums(x: Tensor) -> Tensor:
    """Return the column sums (C,) in float32 of a contiguous matrix x (N, C)."""
    tiling = row_tiling(x, x.shape[1], MAX_COLUMNS)
    partial = torch.empty((tiling.reduction_grid[0], tiling.width), dtype=torch.float32, device=x.device)
    _partial_sums[tiling.reduction_grid](x, partial, tiling.rows, tiling.width, **tiling.tile)
    return partial.sum(0)
