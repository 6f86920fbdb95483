"""Sum of bilinearly upsampled maps, which takes most of the time of an all-MLP decoder.

Maps are in channels_last, and the lanes of a warp lie along channels; pixels are interpolated in float32. In the
backward pass one program sums the gradients of all output pixels that depend on one input pixel, in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.bilinear_tables import axis_tables

MAX_CHANNELS = 128
"""Largest number of channels of a tile."""
MAX_COLUMNS = 16
"""Largest number of columns of a tile."""

# Names: z00, z01, z10, z11 are the corners of a cell (row, column); fy, fx the weights of its lower row and right
# column; in_h, in_w the size of the coarse map, out_h, out_w that of the fine one.


@triton.jit
def _add_upsampled(
    fine, coarse, out, cells_h, cells_w, weights_h, weights_w, num_c, in_h, in_w, out_h, out_w, tile_w: tl.constexpr,
    tile_c: tl.constexpr,
):  # fmt: skip
    """Compute out = fine + up(coarse) for a tile of pixels of one row and of channels."""
    tiles_w = tl.cdiv(out_w, tile_w)
    y = tl.program_id(0) // tiles_w
    x = (tl.program_id(0) % tiles_w) * tile_w + tl.arange(0, tile_w)
    channel = tl.program_id(1) * tile_c + tl.arange(0, tile_c)
    image = tl.program_id(2).to(tl.int64)
    mask = (x < out_w)[:, None] & (channel < num_c)[None, :]
    cell_h = tl.load(cells_h + y)
    cell_w = tl.load(cells_w + x, mask=x < out_w, other=0)
    fy, fx = tl.load(weights_h + y), tl.load(weights_w + x, mask=x < out_w, other=0.0)[:, None]
    coarse += image * in_h * in_w * num_c
    above, below = tl.maximum(cell_h, 0) * in_w, tl.minimum(cell_h + 1, in_h - 1) * in_w
    left, right = tl.maximum(cell_w, 0), tl.minimum(cell_w + 1, in_w - 1)
    z00 = tl.load(coarse + (above + left)[:, None] * num_c + channel[None, :], mask=mask, other=0.0).to(tl.float32)
    z01 = tl.load(coarse + (above + right)[:, None] * num_c + channel[None, :], mask=mask, other=0.0).to(tl.float32)
    z10 = tl.load(coarse + (below + left)[:, None] * num_c + channel[None, :], mask=mask, other=0.0).to(tl.float32)
    z11 = tl.load(coarse + (below + right)[:, None] * num_c + channel[None, :], mask=mask, other=0.0).to(tl.float32)
    left_value, right_value = z00 + fy * (z10 - z00), z01 + fy * (z11 - z01)
    offsets = ((image * out_h + y) * out_w + x)[:, None] * num_c + channel[None, :]
    value = tl.load(fine + offsets, mask=mask, other=0.0).to(tl.float32) + left_value + fx * (right_value - left_value)
    tl.store(out + offsets, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _add_upsampled_backward(
    grad, out, starts_h, starts_w, cells_h, cells_w, weights_h, weights_w, num_c, in_h, in_w, out_h, out_w,
    tile_w: tl.constexpr, tile_c: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of one coarse pixel for a tile of channels: a weighted sum of fine pixels around it."""
    row, column = tl.program_id(0) // in_w, tl.program_id(0) % in_w
    channel = tl.program_id(1) * tile_c + tl.arange(0, tile_c)
    image = tl.program_id(2).to(tl.int64)
    # Its output pixels are in the cells before and after it; entry k of the starts belongs to cell k − 1.
    top, bottom = tl.load(starts_h + row), tl.load(starts_h + row + 2)
    left, right = tl.load(starts_w + column), tl.load(starts_w + column + 2)
    grad += image * out_h * out_w * num_c
    total = tl.zeros((tile_w, tile_c), tl.float32)
    for x_start in range(left, right, tile_w):
        x = x_start + tl.arange(0, tile_w)
        fx = tl.load(weights_w + x, mask=x < right, other=0.0)
        fx = tl.where(tl.load(cells_w + x, mask=x < right, other=-2) == column, 1 - fx, fx)
        mask = (x < right)[:, None] & (channel < num_c)[None, :]
        for y in range(top, bottom):
            fy = tl.load(weights_h + y)
            fy = tl.where(tl.load(cells_h + y) == row, 1 - fy, fy)
            grad_offsets = (y * out_w + x).to(tl.int64)[:, None] * num_c + channel[None, :]
            total += (fy * fx)[:, None] * tl.load(grad + grad_offsets, mask=mask, other=0.0).to(tl.float32)
    offsets = ((image * in_h + row) * in_w + column) * num_c + channel
    tl.store(out + offsets, tl.sum(total, 0).to(out.dtype.element_ty), mask=channel < num_c)


class _AddUpsampled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fine: Tensor, *coarse: Tensor) -> Tensor:
        ctx.shapes = [(small.shape, small.dtype) for small in coarse]
        total = fine.contiguous(memory_format=torch.channels_last)
        out = torch.empty_like(total)
        for small in coarse:
            small = small.contiguous(memory_format=torch.channels_last)
            (table_h, table_w), shape = axis_tables(small, total.shape[2:]), (*small.shape[1:], *total.shape[2:])
            tile_w, tile_c = _tile(total.shape[3], small.shape[1])
            grid = (
                total.shape[2] * triton.cdiv(total.shape[3], tile_w),
                triton.cdiv(small.shape[1], tile_c),
                len(small),
            )
            _add_upsampled[grid](
                total, small, out, table_h.cell_of_pixel, table_w.cell_of_pixel, table_h.weights, table_w.weights,
                *shape, tile_w=tile_w, tile_c=tile_c,
            )  # fmt: skip
            total = out
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        grad = gradients[0].contiguous(memory_format=torch.channels_last)
        grads = [grad]
        for shape, dtype in ctx.shapes:
            out = torch.empty(shape, dtype=dtype, device=grad.device, memory_format=torch.channels_last)
            table_h, table_w = axis_tables(out, grad.shape[2:])
            tile_w, tile_c = _tile(2 * table_w.max_cell_size, shape[1])
            _add_upsampled_backward[(shape[2] * shape[3], triton.cdiv(shape[1], tile_c), shape[0])](
                grad, out, table_h.cell_starts, table_w.cell_starts, table_h.cell_of_pixel, table_w.cell_of_pixel,
                table_h.weights, table_w.weights, *shape[1:], *grad.shape[2:], tile_w=tile_w, tile_c=tile_c,
            )  # fmt: skip
            grads.append(out)
        return tuple(grads)


def add_upsampled(fine: Tensor, *coarse: Tensor) -> Tensor:
    """Return fine + Σ up(coarse), upsampled bilinearly, in channels_last and with the dtype of ``fine``.

    Shapes: fine (B, D, H, W); coarse (B, D, h, w) each.
    """
    total: Tensor = _AddUpsampled.apply(fine, *coarse)
    return total


def _tile(pixels: int, num_c: int) -> tuple[int, int]:
    """Return the numbers of columns and channels of a tile."""
    tile_w = min(triton.next_power_of_2(max(pixels, 1)), MAX_COLUMNS)
    return tile_w, min(max(triton.next_power_of_2(num_c), 16), MAX_CHANNELS)
