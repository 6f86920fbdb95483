"""How kernels go through the rows of a matrix (N, C), which is what a map in channels_last is."""

from __future__ import annotations

from typing import NamedTuple

import triton
from torch import Tensor

TILE = 4096
"""Numbers of a tile."""
PROGRAMS = 1024
"""Programs that add up, about; fewer for each column where there are many columns."""


class Rows(NamedTuple):
    """A matrix, and the tiles that it is cut into."""

    rows: int
    width: int
    tile_rows: int
    tile_width: int

    @property
    def tile(self) -> dict[str, int]:
        """The size of a tile, as kernels take it."""
        return {"tile_rows": self.tile_rows, "tile_width": self.tile_width}

    @property
    def grid(self) -> tuple[int, int]:
        """How many tiles there are, down and across."""
        return triton.cdiv(self.rows, self.tile_rows), triton.cdiv(self.width, self.tile_width)

    @property
    def adders(self) -> tuple[int, int]:
        """How many programs add up a column, each every n-th tile, and how many blocks of columns there are."""
        tiles, blocks = self.grid
        return min(tiles, max(PROGRAMS // blocks, 1)), blocks


def rows_of(x: Tensor, width: int, columns: int) -> Rows:
    """Cut rows of a width into tiles of so many columns at most."""
    wide = min(triton.next_power_of_2(width), columns)
    return Rows(x.numel() // width, width, max(TILE // wide, 1), wide)
