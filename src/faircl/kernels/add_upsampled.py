"""Adding upsampled maps to a finer one: what all-MLP decoders spend most of their time on.

Maps have their channels side by side (channels_last), and so have the lanes of a warp; pixels are mixed in float32.
Backward gathers: a program adds up the pixels that one place of the coarse map was mixed into, in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.upsample_cells import axes

CHANNELS = 128
"""Channels of a tile, at most."""
COLUMNS = 16
"""Columns of a tile, at most."""


@triton.jit
def _add_upsampled(
    fine, coarse, out, cells_h, cells_w, weights_h, weights_w, width, small_h, small_w, large_h, large_w,
    columns: tl.constexpr, channels: tl.constexpr,
):  # fmt: skip
    """Compute out = fine + up(coarse) for some pixels of a row and some channels."""
    blocks = tl.cdiv(large_w, columns)
    y = tl.program_id(0) // blocks
    x = (tl.program_id(0) % blocks) * columns + tl.arange(0, columns)
    channel = tl.program_id(1) * channels + tl.arange(0, channels)
    image = tl.program_id(2).to(tl.int64)
    there = (x < large_w)[:, None] & (channel < width)[None, :]
    row = tl.load(cells_h + y)
    column = tl.load(cells_w + x, mask=x < large_w, other=0)
    fy, fx = tl.load(weights_h + y), tl.load(weights_w + x, mask=x < large_w, other=0.0)[:, None]
    coarse += image * small_h * small_w * width
    above, below = tl.maximum(row, 0) * small_w, tl.minimum(row + 1, small_h - 1) * small_w
    left, right = tl.maximum(column, 0), tl.minimum(column + 1, small_w - 1)
    aa = tl.load(coarse + (above + left)[:, None] * width + channel[None, :], mask=there, other=0.0).to(tl.float32)
    ab = tl.load(coarse + (above + right)[:, None] * width + channel[None, :], mask=there, other=0.0).to(tl.float32)
    ba = tl.load(coarse + (below + left)[:, None] * width + channel[None, :], mask=there, other=0.0).to(tl.float32)
    bb = tl.load(coarse + (below + right)[:, None] * width + channel[None, :], mask=there, other=0.0).to(tl.float32)
    first, second = aa + fy * (ba - aa), ab + fy * (bb - ab)
    place = ((image * large_h + y) * large_w + x)[:, None] * width + channel[None, :]
    value = tl.load(fine + place, mask=there, other=0.0).to(tl.float32) + first + fx * (second - first)
    tl.store(out + place, value.to(out.dtype.element_ty), mask=there)


@triton.jit
def _gather_upsampled(
    grad, out, starts_h, starts_w, cells_h, cells_w, weights_h, weights_w, width, small_h, small_w, large_h, large_w,
    columns: tl.constexpr, channels: tl.constexpr,
):  # fmt: skip
    """One place of the coarse map and some channels: the weighted sum of the pixels around it."""
    row, column = tl.program_id(0) // small_w, tl.program_id(0) % small_w
    channel = tl.program_id(1) * channels + tl.arange(0, channels)
    image = tl.program_id(2).to(tl.int64)
    # The pixels of the cells before and after it; entry k of the starts is of cell k − 1.
    top, bottom = tl.load(starts_h + row), tl.load(starts_h + row + 2)
    left, right = tl.load(starts_w + column), tl.load(starts_w + column + 2)
    grad += image * large_h * large_w * width
    total = tl.zeros((columns, channels), tl.float32)
    for x_start in range(left, right, columns):
        x = x_start + tl.arange(0, columns)
        fx = tl.load(weights_w + x, mask=x < right, other=0.0)
        fx = tl.where(tl.load(cells_w + x, mask=x < right, other=-2) == column, 1 - fx, fx)
        there = (x < right)[:, None] & (channel < width)[None, :]
        for y in range(top, bottom):
            fy = tl.load(weights_h + y)
            fy = tl.where(tl.load(cells_h + y) == row, 1 - fy, fy)
            at = (y * large_w + x).to(tl.int64)[:, None] * width + channel[None, :]
            total += (fy * fx)[:, None] * tl.load(grad + at, mask=there, other=0.0).to(tl.float32)
    place = ((image * small_h + row) * small_w + column) * width + channel
    tl.store(out + place, tl.sum(total, 0).to(out.dtype.element_ty), mask=channel < width)


class _AddUpsampled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fine: Tensor, *coarse: Tensor) -> Tensor:
        ctx.shapes = [(one.shape, one.dtype) for one in coarse]
        total = fine.contiguous(memory_format=torch.channels_last)
        out = torch.empty_like(total)
        for one in coarse:
            one = one.contiguous(memory_format=torch.channels_last)
            (high, wide), shape = axes(one, total.shape[2:]), (*one.shape[1:], *total.shape[2:])
            columns, channels = _tile(total.shape[3], one.shape[1])
            grid = (
                total.shape[2] * triton.cdiv(total.shape[3], columns),
                triton.cdiv(one.shape[1], channels),
                len(one),
            )
            _add_upsampled[grid](
                total, one, out, high.cells, wide.cells, high.weights, wide.weights, *shape, columns=columns,
                channels=channels,
            )  # fmt: skip
            total = out
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        grad = gradients[0].contiguous(memory_format=torch.channels_last)
        found = [grad]
        for shape, dtype in ctx.shapes:
            out = torch.empty(shape, dtype=dtype, device=grad.device, memory_format=torch.channels_last)
            high, wide = axes(out, grad.shape[2:])
            columns, channels = _tile(2 * wide.longest, shape[1])
            _gather_upsampled[(shape[2] * shape[3], triton.cdiv(shape[1], channels), shape[0])](
                grad, out, high.starts, wide.starts, high.cells, wide.cells, high.weights, wide.weights, *shape[1:],
                *grad.shape[2:], columns=columns, channels=channels,
            )  # fmt: skip
            found.append(out)
        return tuple(found)


def add_upsampled(fine: Tensor, *coarse: Tensor) -> Tensor:
    """Return fine + Σ up(coarse), bilinear, in channels_last and in the type of ``fine``.

    Shapes: fine (B, D, H, W); coarse (B, D, h, w) each.
    """
    total: Tensor = _AddUpsampled.apply(fine, *coarse)
    return total


def _tile(pixels: int, width: int) -> tuple[int, int]:
    """Columns and channels of a tile."""
    columns = min(triton.next_power_of_2(max(pixels, 1)), COLUMNS)
    return columns, min(max(triton.next_power_of_2(width), 16), CHANNELS)
