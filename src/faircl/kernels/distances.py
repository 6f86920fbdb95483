"""Distances of pixels to prototypes, in registers.

Products of a tile of pixels with blocks of prototypes are added up over the width; ‖f − p‖² = ‖f‖² + ‖p‖² − 2·f·p. Two
blocks at a time, so that features are read once for both.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _more(f, product, points, prototype, count, channel, width):
    """Add f·p for some channels: (pixels, depth), (depth, block) to (pixels, block)."""
    place = prototype[None, :] * width + channel[:, None]
    known = (prototype < count)[None, :] & (channel < width)[:, None]
    return tl.dot(f, tl.load(points + place, mask=known, other=0.0), product, input_precision="ieee")


@triton.jit
def _distance(product, norm, squares, largest, prototype, count):
    """√(‖f‖² + ‖p‖² − 2·f·p) of a tile of pixels and a block of prototypes, not below rounding.

    Prototypes that are not active, or not there, are infinitely far: so their ``squares`` say.
    """
    square = tl.load(squares + prototype, mask=prototype < count, other=float("inf"))
    # The sum is exact up to the rounding of its largest part, so no distance is below that.
    floor = tl.maximum((norm + tl.load(largest)) * 1.1920929e-07, 1.1754944e-38)
    return tl.sqrt(tl.maximum(norm[:, None] + square[None, :] - 2 * product, floor[:, None]))


@triton.jit
def distances(
    base, at, there, points, squares, largest, first, count, width, step, pixels: tl.constexpr,
    block: tl.constexpr, rest: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Return distances of a tile of pixels to two blocks of prototypes: (pixels, block), (pixels, rest or 1)."""
    prototype, further = first + tl.arange(0, block), first + block + tl.arange(0, max(rest, 1))
    inner = tl.arange(0, depth)
    product = tl.zeros((pixels, block), tl.float32)
    others = tl.zeros((pixels, max(rest, 1)), tl.float32)
    norm = tl.zeros((pixels,), tl.float32)
    for start in range(0, width, depth):
        channel = start + inner
        f = tl.load(base + at, mask=there[:, None] & (channel < width)[None, :], other=0.0)
        product = _more(f, product, points, prototype, count, channel, width)
        if rest > 0:
            others = _more(f, others, points, further, count, channel, width)
        deep = f.to(tl.float32)
        norm += tl.sum(deep * deep, 1)
        base += depth * step
    near = _distance(product, norm, squares, largest, prototype, count)
    if rest > 0:
        others = _distance(others, norm, squares, largest, further, count)
    return near, others


@triton.jit
def own_distance(base, at, there, points, label, width, step, pixels: tl.constexpr, depth: tl.constexpr):
    """‖f − p_y‖ of a tile of pixels, from the differences."""
    inner = tl.arange(0, depth)
    square = tl.zeros((pixels,), tl.float32)
    for start in range(0, width, depth):
        channel = start + inner
        inside = there[:, None] & (channel < width)[None, :]
        f = tl.load(base + at, mask=inside, other=0.0)
        p = tl.load(points + label[:, None] * width + channel[None, :], mask=inside & (label >= 0)[:, None], other=0.0)
        square += tl.sum((f - p) * (f - p), 1)
        base += depth * step
    return tl.sqrt(square)
