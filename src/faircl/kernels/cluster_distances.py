"""Device functions for distances of pixels to prototypes, ‖f − p‖² = ‖f‖² + ‖p‖² − 2·f·p.

Products of a tile of pixels and blocks of prototypes are accumulated over channels in registers. Two blocks are
computed at a time, so that features are read once for both.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _add_products(f, product, prototypes, index, num_k, channel, num_c):
    """Add f·p over some channels: (pixels, depth), (depth, block) to (pixels, block)."""
    offsets = index[None, :] * num_c + channel[:, None]
    mask = (index < num_k)[None, :] & (channel < num_c)[:, None]
    return tl.dot(f, tl.load(prototypes + offsets, mask=mask, other=0.0), product, input_precision="ieee")


@triton.jit
def _distance(product, norm2_f, norms2, max_norm2, index, num_k):
    """Return √(‖f‖² + ‖p‖² − 2·f·p) of a tile of pixels and a block of prototypes, clamped to its rounding error.

    The squared norm of prototypes that are inactive or beyond the last is ∞, and so is their distance.
    """
    norm2 = tl.load(norms2 + index, mask=index < num_k, other=float("inf"))
    # The rounding error of the sum is that of its largest term.
    floor = tl.maximum((norm2_f + tl.load(max_norm2)) * 1.1920929e-07, 1.1754944e-38)
    return tl.sqrt(tl.maximum(norm2_f[:, None] + norm2[None, :] - 2 * product, floor[:, None]))


@triton.jit
def distances(
    base, offsets, p_mask, prototypes, norms2, max_norm2, first, num_k, num_c, stride_c, tile_p: tl.constexpr,
    block_1: tl.constexpr, block_2: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Return distances of a tile of pixels to two blocks of prototypes: (pixels, block_1), (pixels, block_2 or 1)."""
    index_1, index_2 = first + tl.arange(0, block_1), first + block_1 + tl.arange(0, max(block_2, 1))
    c_range = tl.arange(0, depth)
    product_1 = tl.zeros((tile_p, block_1), tl.float32)
    product_2 = tl.zeros((tile_p, max(block_2, 1)), tl.float32)
    norm2_f = tl.zeros((tile_p,), tl.float32)
    for start in range(0, num_c, depth):
        channel = start + c_range
        f = tl.load(base + offsets, mask=p_mask[:, None] & (channel < num_c)[None, :], other=0.0)
        product_1 = _add_products(f, product_1, prototypes, index_1, num_k, channel, num_c)
        if block_2 > 0:
            product_2 = _add_products(f, product_2, prototypes, index_2, num_k, channel, num_c)
        f32 = f.to(tl.float32)
        norm2_f += tl.sum(f32 * f32, 1)
        base += depth * stride_c
    distance_1 = _distance(product_1, norm2_f, norms2, max_norm2, index_1, num_k)
    distance_2 = product_2
    if block_2 > 0:
        distance_2 = _distance(product_2, norm2_f, norms2, max_norm2, index_2, num_k)
    return distance_1, distance_2


@triton.jit
def own_distance(base, offsets, p_mask, prototypes, label, num_c, stride_c, tile_p: tl.constexpr, depth: tl.constexpr):
    """Return ‖f − p_y‖ of a tile of pixels, computed from the differences."""
    c_range = tl.arange(0, depth)
    squared_distance = tl.zeros((tile_p,), tl.float32)
    for start in range(0, num_c, depth):
        channel = start + c_range
        mask = p_mask[:, None] & (channel < num_c)[None, :]
        f = tl.load(base + offsets, mask=mask, other=0.0)
        p = tl.load(
            prototypes + label[:, None] * num_c + channel[None, :], mask=mask & (label >= 0)[:, None], other=0.0
        )
        squared_distance += tl.sum((f - p) * (f - p), 1)
        base += depth * stride_c
    return tl.sqrt(squared_distance)
