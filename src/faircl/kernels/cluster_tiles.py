"""Tile sizes of the kernels of L_cluster, by dtype and number of prototypes."""

from __future__ import annotations

from typing import NamedTuple

import torch

MAX_TWO_BLOCKS = 256
"""Largest number of prototypes whose distances are held at once, in two blocks."""
MAX_BLOCK = 128
"""Largest number of prototypes in the first block; the second block holds the others and is as small as possible."""


class TileSizes(NamedTuple):
    """Tile sizes of a program, powers of two of at least 16, and its launch options."""

    tile_p: int
    prototypes: int
    depth: int
    """Channels per step of the products f·p."""
    tile_c: int
    """Channels of the gradient that are written per step."""
    warps: int
    stages: int


# No kernel needs more than 99 KiB of shared memory, the limit of small GPUs. On an H200 registers just suffice.
FORWARD = TileSizes(tile_p=64, prototypes=MAX_BLOCK, depth=64, tile_c=0, warps=4, stages=3)
FORWARD_WIDE = TileSizes(tile_p=64, prototypes=MAX_BLOCK, depth=32, tile_c=0, warps=8, stages=3)
"""With a large second block."""
FORWARD_MANY = TileSizes(tile_p=128, prototypes=64, depth=64, tile_c=0, warps=4, stages=3)
FORWARD_FP32 = TileSizes(tile_p=64, prototypes=64, depth=32, tile_c=0, warps=8, stages=2)
"""For float32 features, whose exact products do not use tensor cores."""
BACKWARD = TileSizes(tile_p=64, prototypes=MAX_BLOCK, depth=32, tile_c=64, warps=4, stages=3)
BACKWARD_WIDE = TileSizes(tile_p=64, prototypes=MAX_BLOCK, depth=32, tile_c=32, warps=8, stages=2)
BACKWARD_FP32 = TileSizes(tile_p=64, prototypes=MAX_BLOCK, depth=32, tile_c=16, warps=8, stages=2)
BACKWARD_MANY = TileSizes(tile_p=128, prototypes=64, depth=32, tile_c=128, warps=8, stages=2)
"""For more than MAX_TWO_BLOCKS prototypes; ``tile_c`` is the width of the accumulator."""
BACKWARD_MANY_FP32 = TileSizes(tile_p=64, prototypes=64, depth=32, tile_c=64, warps=8, stages=2)


def forward_tiles(dtype: torch.dtype, prototypes: int) -> dict[str, int]:
    """Return the constants and launch options of the forward kernel for a number of prototypes."""
    is_16bit, two_blocks = _is_16bit(dtype), prototypes <= MAX_TWO_BLOCKS
    block_2 = _second_block(prototypes) if is_16bit and two_blocks else 0
    if is_16bit and two_blocks:
        sizes = FORWARD if block_2 <= 32 else FORWARD_WIDE
    else:
        sizes = FORWARD_MANY if is_16bit else FORWARD_FP32
    return {
        "is_16bit": is_16bit,
        "tile_p": sizes.tile_p,
        "block_1": min(_block_size(prototypes), sizes.prototypes),
        "block_2": block_2,
        "depth": sizes.depth,
        "num_warps": sizes.warps,
        "num_stages": sizes.stages,
    }


def backward_tiles(dtype: torch.dtype, prototypes: int) -> dict[str, int]:
    """Return the constants and launch options of the backward kernel for a number of prototypes."""
    two_blocks, is_16bit = prototypes <= MAX_TWO_BLOCKS, _is_16bit(dtype)
    block_2 = _second_block(prototypes) if two_blocks else 0
    if two_blocks:
        sizes = BACKWARD_FP32 if not is_16bit else BACKWARD if block_2 <= 32 else BACKWARD_WIDE
    else:
        sizes = BACKWARD_MANY if is_16bit else BACKWARD_MANY_FP32
    return {
        "is_16bit": is_16bit,
        "two_blocks": two_blocks,
        "tile_p": sizes.tile_p,
        "block_1": min(_block_size(prototypes), sizes.prototypes),
        "block_2": block_2,
        "depth": sizes.depth,
        "tile_c": sizes.tile_c,
        "num_warps": sizes.warps,
        "num_stages": sizes.stages,
    }


def _is_16bit(dtype: torch.dtype) -> bool:
    """Whether features are float16 or bfloat16."""
    return dtype != torch.float32


def _second_block(prototypes: int) -> int:
    """Return the size of the second block, 0 if the first holds all prototypes."""
    return _block_size(prototypes - MAX_BLOCK) if prototypes > MAX_BLOCK else 0


def _block_size(prototypes: int) -> int:
    """Return the smallest block size for a number of prototypes."""
    return max(16, 1 << (prototypes - 1).bit_length())
