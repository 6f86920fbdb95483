"""Training windows of a batch, each resampled from a part of another image and of another size, in one launch.

Programs find their window by its address: the parts stay where they are, in a buffer that was sent or in images kept on
the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256
"""Output pixels of a program."""


@triton.jit
def _axis(place, length, size):
    """Return centre of output pixels among ``length`` source pixels, first and last source pixel, 1 / filter width."""
    scale = length.to(tl.float32) / size
    width = tl.maximum(scale, 1.0)  # a triangle of one source pixel, or as wide as an output pixel where it shrinks
    centre = scale * (place + 0.5)
    first = tl.maximum((centre - width + 0.5).to(tl.int32), 0)
    last = tl.minimum((centre + width + 0.5).to(tl.int32), length.to(tl.int32))
    return centre, first, last, 1.0 / width


@triton.jit
def _taps(length, size):
    """Most source pixels that an output pixel is made of along an axis."""
    return (2 * tl.maximum(length, size) + size - 1) // size + 1


@triton.jit
def _shown(place, size, geometry):
    """Return rows and columns of output pixels in their window, before it is mirrored, and numbers of the window."""
    row, column = place // size, place % size
    mirrored = tl.load(geometry + 4) > 0
    column = tl.where(mirrored, size - 1 - column, column)
    top, left = tl.load(geometry).to(tl.int32), tl.load(geometry + 1).to(tl.int32)
    high, wide = tl.load(geometry + 5).to(tl.int32), tl.load(geometry + 6).to(tl.int32)
    return row, column, top, left, high, wide


@triton.jit
def _resample(addresses, geometry, out, size, red, green, blue, block: tl.constexpr):
    """Mix source pixels to some output pixels of a window, weighted by the triangle filters of both axes."""
    window = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * block + tl.arange(0, block)
    there = place < size * size
    geometry += 7 * window
    row, column, top, left, high, wide = _shown(place, size, geometry)
    height, width = tl.load(geometry + 2).to(tl.int32), tl.load(geometry + 3).to(tl.int32)
    source = tl.load(addresses + 2 * window).to(tl.pointer_type(tl.uint8))
    step = tl.load(addresses + 2 * window + 1)
    centre_y, first_y, last_y, narrow_y = _axis(row, height, size)
    centre_x, first_x, last_x, narrow_x = _axis(column, width, size)
    sum_red = tl.zeros((block,), tl.float32)
    sum_green = tl.zeros((block,), tl.float32)
    sum_blue = tl.zeros((block,), tl.float32)
    total = tl.zeros((block,), tl.float32)
    for down in range(0, _taps(height, size)):
        y = first_y + down
        weight_y = tl.maximum(1.0 - tl.abs((y - centre_y + 0.5) * narrow_y), 0.0)
        weight_y = tl.where(y < last_y, weight_y, 0.0)
        line = (top + y).to(tl.int64) * step
        inside_y = (top + y >= 0) & (top + y < high)
        for right in range(0, _taps(width, size)):
            x = first_x + right
            weight = tl.maximum(1.0 - tl.abs((x - centre_x + 0.5) * narrow_x), 0.0)
            weight = tl.where(x < last_x, weight, 0.0) * weight_y
            inside = there & inside_y & (left + x >= 0) & (left + x < wide)
            at = source + line + 3 * (left + x)
            pixel_red = tl.load(at, mask=inside, other=0).to(tl.float32)
            pixel_green = tl.load(at + 1, mask=inside, other=0).to(tl.float32)
            pixel_blue = tl.load(at + 2, mask=inside, other=0).to(tl.float32)
            sum_red += weight * tl.where(inside, pixel_red, red)
            sum_green += weight * tl.where(inside, pixel_green, green)
            sum_blue += weight * tl.where(inside, pixel_blue, blue)
            total += weight
    total = tl.where(there, total, 1.0)
    at = out + 3 * (window * size * size + place)
    tl.store(at, (sum_red / total + 0.5).to(tl.uint8), mask=there)
    tl.store(at + 1, (sum_green / total + 0.5).to(tl.uint8), mask=there)
    tl.store(at + 2, (sum_blue / total + 0.5).to(tl.uint8), mask=there)


@triton.jit
def _take(addresses, geometry, out, size, fill, block: tl.constexpr):
    """Give some output pixels of a window the source pixels that their centres lie in."""
    window = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * block + tl.arange(0, block)
    there = place < size * size
    geometry += 7 * window
    row, column, top, left, high, wide = _shown(place, size, geometry)
    # In whole numbers: the division must not fall short of an exact centre.
    y = top + ((2 * row + 1) * tl.load(geometry + 2) // (2 * size)).to(tl.int32)
    x = left + ((2 * column + 1) * tl.load(geometry + 3) // (2 * size)).to(tl.int32)
    inside = there & (y >= 0) & (y < high) & (x >= 0) & (x < wide)
    source = tl.load(addresses + 2 * window).to(tl.pointer_type(out.dtype.element_ty))
    step = tl.load(addresses + 2 * window + 1)
    value = tl.load(source + y.to(tl.int64) * step + x, mask=inside, other=0)
    value = tl.where(inside, value, fill).to(out.dtype.element_ty)
    tl.store(out + window * size * size + place, value, mask=there)


def resample(parts: Sequence[Tensor], geometry: Tensor, size: int, outside: tuple[int, int, int]) -> Tensor:
    """Sample a batch of windows bilinearly, low-passed where they shrink, as ``Crop.sample`` does to a level of 255.

    Shapes: parts (h, w, 3) uint8, each row without gaps; geometry (B, 7) int64, top, left, height, width and flip of
    the crops as seen from the parts, h and w; ``outside`` is the colour there. Returns (B, 3, size, size) uint8, its
    channels last in memory.
    """
    out = geometry.new_empty((len(parts), size, size, 3), dtype=torch.uint8)
    grid = (triton.cdiv(size * size, BLOCK), len(parts))
    colour = [float(level) for level in outside]
    _resample[grid](_addresses(parts, geometry), geometry, out, size, *colour, block=BLOCK)
    return out.permute(0, 3, 1, 2)


def take(parts: Sequence[Tensor], geometry: Tensor, size: int, outside: int) -> Tensor:
    """Sample windows by nearest neighbour, as ``Crop.mask`` does; parts (h, w) of one type, returns (B, size, size)."""
    kind = parts[0].dtype
    plain = [part.view(torch.uint8) if kind == torch.bool else part for part in parts]
    out = geometry.new_empty((len(parts), size, size), dtype=plain[0].dtype)
    grid = (triton.cdiv(size * size, BLOCK), len(parts))
    _take[grid](_addresses(plain, geometry), geometry, out, size, int(outside), block=BLOCK)
    return out.view(kind)


def _addresses(parts: Sequence[Tensor], geometry: Tensor) -> Tensor:
    """Return where parts begin, and their elements from row to row: (B, 2) int64 beside the geometry."""
    packed = (3, 1) if parts[0].ndim == 3 else (1,)
    if any(part.stride()[1:] != packed and part.numel() > 0 for part in parts):
        raise ValueError("the pixels of a row must lie side by side")
    numbers = torch.tensor([[part.data_ptr(), part.stride(0)] for part in parts])
    if geometry.device.type != "cuda":
        return numbers
    return numbers.pin_memory().to(geometry.device, non_blocking=True)
