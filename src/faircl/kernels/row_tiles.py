"""Tiling of a matrix (N, C), such as a channels_last map (B·H·W, C), for kernels that work on rows."""

from __future__ import annotations

from typing import NamedTuple

import triton
from torch import Tensor

TILE_SIZE = 4096
"""Number of elements of a tile."""
MAX_PROGRAMS = 1024
"""Approximate largest number of programs of a reduction over rows, for all blocks of columns together."""


class RowTiling(NamedTuple):
    """The size of a matrix and of its tiles."""

    rows: int
    width: int
    tile_rows: int
    tile_width: int

    @property
    def tile(self) -> dict[str, int]:
        """The size of a tile as keyword arguments of a kernel."""
        return {"tile_rows": self.tile_rows, "tile_width": self.tile_width}

    @property
    def grid(self) -> tuple[int, int]:
        """Number of tiles along rows and columns: one program per tile."""
        return triton.cdiv(self.rows, self.tile_rows), triton.cdiv(self.width, self.tile_width)

    @property
    def reduction_grid(self) -> tuple[int, int]:
        """Number of programs per block of columns, each reducing every n-th tile of rows, and number of blocks."""
        tiles, blocks = self.grid
        return min(tiles, max(MAX_PROGRAMS // blocks, 1)), blocks


def row_tiling(x: Tensor, width: int, max_columns: int) -> RowTiling:
    """Return the tiling of x as rows of ``width`` elements, with tiles of at most ``max_columns`` columns."""
    tile_width = min(triton.next_power_of_2(width), max_columns)
    return RowTiling(x.numel() // width, width, max(TILE_SIZE // tile_width, 1), tile_width)
