"""Resampling of the training windows of a batch, crops of different images and sizes, in one launch.

Images are passed by address: they stay in a transferred buffer or in the device cache and are not copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256
"""Output pixels per program."""

# Names: a window is a crop with top, left, height, width in its image of image_h × image_w pixels; it is resampled to
# out_size × out_size. ``addresses`` (B, 2): address and row stride of every image. ``geometry`` (B, 7): see
# ``resample_bilinear``.


@triton.jit
def _filter_support(pixel, in_size, out_size):
    """Return the triangle filter of output pixels along an axis of ``in_size`` source pixels.

    Returns its centre, its first source pixel, the end of its source pixels and 1 / its half width.
    """
    scale = in_size.to(tl.float32) / out_size
    width = tl.maximum(scale, 1.0)  # half width: one source pixel, or one output pixel when downsampling
    centre = scale * (pixel + 0.5)
    first = tl.maximum((centre - width + 0.5).to(tl.int32), 0)
    last = tl.minimum((centre + width + 0.5).to(tl.int32), in_size.to(tl.int32))
    return centre, first, last, 1.0 / width


@triton.jit
def _max_taps(in_size, out_size):
    """Return the largest number of source pixels of an output pixel along an axis."""
    return (2 * tl.maximum(in_size, out_size) + out_size - 1) // out_size + 1


@triton.jit
def _window_geometry(pixel, out_size, geometry):
    """Return row and column of output pixels before mirroring, top and left of the window, and the image size."""
    row, column = pixel // out_size, pixel % out_size
    mirrored = tl.load(geometry + 4) > 0
    column = tl.where(mirrored, out_size - 1 - column, column)
    top, left = tl.load(geometry).to(tl.int32), tl.load(geometry + 1).to(tl.int32)
    image_h, image_w = tl.load(geometry + 5).to(tl.int32), tl.load(geometry + 6).to(tl.int32)
    return row, column, top, left, image_h, image_w


@triton.jit
def _resample_bilinear(addresses, geometry, out, out_size, red, green, blue, block: tl.constexpr):
    """Compute a block of output pixels of a window as means of source pixels, weighted by triangle filters."""
    window = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    mask = pixel < out_size * out_size
    geometry += 7 * window
    row, column, top, left, image_h, image_w = _window_geometry(pixel, out_size, geometry)
    height, width = tl.load(geometry + 2).to(tl.int32), tl.load(geometry + 3).to(tl.int32)
    source = tl.load(addresses + 2 * window).to(tl.pointer_type(tl.uint8))
    row_stride = tl.load(addresses + 2 * window + 1)
    centre_y, first_y, last_y, inverse_width_y = _filter_support(row, height, out_size)
    centre_x, first_x, last_x, inverse_width_x = _filter_support(column, width, out_size)
    sum_red = tl.zeros((block,), tl.float32)
    sum_green = tl.zeros((block,), tl.float32)
    sum_blue = tl.zeros((block,), tl.float32)
    total = tl.zeros((block,), tl.float32)
    for tap_y in range(0, _max_taps(height, out_size)):
        y = first_y + tap_y
        weight_y = tl.maximum(1.0 - tl.abs((y - centre_y + 0.5) * inverse_width_y), 0.0)
        weight_y = tl.where(y < last_y, weight_y, 0.0)
        row_offset = (top + y).to(tl.int64) * row_stride
        inside_y = (top + y >= 0) & (top + y < image_h)
        for tap_x in range(0, _max_taps(width, out_size)):
            x = first_x + tap_x
            weight = tl.maximum(1.0 - tl.abs((x - centre_x + 0.5) * inverse_width_x), 0.0)
            weight = tl.where(x < last_x, weight, 0.0) * weight_y
            inside = mask & inside_y & (left + x >= 0) & (left + x < image_w)
            pointer = source + row_offset + 3 * (left + x)
            pixel_red = tl.load(pointer, mask=inside, other=0).to(tl.float32)
            pixel_green = tl.load(pointer + 1, mask=inside, other=0).to(tl.float32)
            pixel_blue = tl.load(pointer + 2, mask=inside, other=0).to(tl.float32)
            sum_red += weight * tl.where(inside, pixel_red, red)
            sum_green += weight * tl.where(inside, pixel_green, green)
            sum_blue += weight * tl.where(inside, pixel_blue, blue)
            total += weight
    total = tl.where(mask, total, 1.0)
    pointer = out + 3 * (window * out_size * out_size + pixel)
    tl.store(pointer, (sum_red / total + 0.5).to(tl.uint8), mask=mask)
    tl.store(pointer + 1, (sum_green / total + 0.5).to(tl.uint8), mask=mask)
    tl.store(pointer + 2, (sum_blue / total + 0.5).to(tl.uint8), mask=mask)


@triton.jit
def _resample_nearest(addresses, geometry, out, out_size, fill, block: tl.constexpr):
    """Copy to a block of output pixels of a window the source pixels that contain their centres."""
    window = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    mask = pixel < out_size * out_size
    geometry += 7 * window
    row, column, top, left, image_h, image_w = _window_geometry(pixel, out_size, geometry)
    # In integers: a float division could round an exact centre down to the pixel before.
    y = top + ((2 * row + 1) * tl.load(geometry + 2) // (2 * out_size)).to(tl.int32)
    x = left + ((2 * column + 1) * tl.load(geometry + 3) // (2 * out_size)).to(tl.int32)
    inside = mask & (y >= 0) & (y < image_h) & (x >= 0) & (x < image_w)
    source = tl.load(addresses + 2 * window).to(tl.pointer_type(out.dtype.element_ty))
    row_stride = tl.load(addresses + 2 * window + 1)
    value = tl.load(source + y.to(tl.int64) * row_stride + x, mask=inside, other=0)
    value = tl.where(inside, value, fill).to(out.dtype.element_ty)
    tl.store(out + window * out_size * out_size + pixel, value, mask=mask)


def resample_bilinear(images: Sequence[Tensor], geometry: Tensor, out_size: int, fill: tuple[int, int, int]) -> Tensor:
    """Resample a batch of windows bilinearly with antialiasing, equal to ``Crop.sample`` up to one level of 255.

    Shapes: images (h, w, 3) uint8 with contiguous rows; geometry (B, 7) int64: top, left, height, width and flip of
    the window in its image, h and w; ``fill`` is the colour outside the image. Returns (B, 3, out_size, out_size) uint8
    in channels_last.
    """
    out = geometry.new_empty((len(images), out_size, out_size, 3), dtype=torch.uint8)
    grid = (triton.cdiv(out_size * out_size, BLOCK), len(images))
    fill_colour = [float(level) for level in fill]
    _resample_bilinear[grid](_addresses(images, geometry), geometry, out, out_size, *fill_colour, block=BLOCK)
    return out.permute(0, 3, 1, 2)


def resample_nearest(images: Sequence[Tensor], geometry: Tensor, out_size: int, fill: int) -> Tensor:
    """Resample windows by nearest neighbour, as ``Crop.mask`` does: images (h, w) to (B, out_size, out_size)."""
    dtype = images[0].dtype
    viewed = [image.view(torch.uint8) if dtype == torch.bool else image for image in images]
    out = geometry.new_empty((len(images), out_size, out_size), dtype=viewed[0].dtype)
    grid = (triton.cdiv(out_size * out_size, BLOCK), len(images))
    _resample_nearest[grid](_addresses(viewed, geometry), geometry, out, out_size, int(fill), block=BLOCK)
    return out.view(dtype)


def _addresses(images: Sequence[Tensor], geometry: Tensor) -> Tensor:
    """Return the address and row stride of every image, (B, 2) int64 on the device of the geometry."""
    expected_strides = (3, 1) if images[0].ndim == 3 else (1,)
    if any(image.stride()[1:] != expected_strides and image.numel() > 0 for image in images):
        raise ValueError("expected images with contiguous rows")
    table = torch.tensor([[image.data_ptr(), image.stride(0)] for image in images])
    if geometry.device.type != "cuda":
        return table
    return table.pin_memory().to(geometry.device, non_blocking=True)
