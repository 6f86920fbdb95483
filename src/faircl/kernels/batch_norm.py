"""BatchNorm, alone or with what comes after it: ReLU, ReLU and a convolution, or a sum and ReLU.

    y = max(0, (x − μ)·s·w + b),   out = max(0, (x − μ)·s·w + b + other),   s = 1/√(variance + ε)

A convolution keeps its input for the gradient of its weights, and ReLU its output: both are y, which is computed again
from x instead, for a sixth of a ResNet's memory. What torch does in three passes over a map is one here. Sums are taken
in a fixed order.

Shapes: maps (B, C, H, W) in channels_last, which is rows (B·H·W, C); all else (C,).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.row_tiles import Rows, rows_of

CHANNELS = 128
"""Channels of a tile, at most: a row of it is then 256 bytes in 16 bits."""


class Norm(NamedTuple):
    """μ, s, w and b, (C,) each, and whether μ and s are those of the batch."""

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    of_batch: bool


class Window(NamedTuple):
    """How a convolution moves over its input."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


@triton.jit
def _normal(x, at, there, mean, scale, channel, width):
    """Return (x − μ)·s of a tile."""
    m = tl.load(mean + channel, mask=channel < width, other=0.0)[None, :]
    s = tl.load(scale + channel, mask=channel < width, other=0.0)[None, :]
    return (tl.load(x + at, mask=there, other=0.0).to(tl.float32) - m) * s


@triton.jit
def _moments(x, numbers, means, squares, rows, width, tile_rows: tl.constexpr, tile_width: tl.constexpr):
    """Every n-th tile of rows: how many, their mean and Σ (x − mean)², by Welford's recurrence; (programs, C)."""
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    count = tl.zeros((tile_rows,), tl.float32)
    mean = tl.zeros((tile_rows, tile_width), tl.float32)
    square = tl.zeros((tile_rows, tile_width), tl.float32)
    for start in range(tl.program_id(0) * tile_rows, rows, tl.num_programs(0) * tile_rows):
        row = (start + tl.arange(0, tile_rows)).to(tl.int64)
        there = (row < rows)[:, None] & (channel < width)[None, :]
        value = tl.load(x + row[:, None] * width + channel[None, :], mask=there, other=0.0).to(tl.float32)
        count += tl.where(row < rows, 1.0, 0.0)
        apart = tl.where(there, value - mean, 0.0)
        mean += apart * (1 / tl.maximum(count, 1.0))[:, None]
        square += apart * tl.where(there, value - mean, 0.0)
    total = tl.sum(count, 0)
    middle = tl.sum(mean * count[:, None], 0) / total
    apart = mean - middle[None, :]
    place = tl.program_id(0) * width + channel
    tl.store(means + place, middle, mask=channel < width)
    tl.store(squares + place, tl.sum(square + apart * apart * count[:, None], 0), mask=channel < width)
    tl.store(numbers + tl.program_id(0), total)


@triton.jit
def _finish(
    numbers, means, squares, mean, scale, running_mean, running_var, programs, rows, width, eps, momentum,
    tile_rows: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    """Put the programs' moments together, and move the running ones by the momentum."""
    channel = tl.program_id(0) * tile_width + tl.arange(0, tile_width)
    program = tl.arange(0, tile_rows)
    there = (program < programs)[:, None] & (channel < width)[None, :]
    at = program[:, None] * width + channel[None, :]
    count = tl.load(numbers + program, mask=program < programs, other=0.0)[:, None]
    of_each = tl.load(means + at, mask=there, other=0.0)
    middle = tl.sum(of_each * count, 0) / rows
    apart = of_each - middle[None, :]
    square = tl.sum(tl.load(squares + at, mask=there, other=0.0) + apart * apart * count, 0)
    inside = channel < width
    tl.store(mean + channel, middle, mask=inside)
    tl.store(scale + channel, tl.rsqrt(square / rows + eps), mask=inside)
    before = tl.load(running_mean + channel, mask=inside, other=0.0)
    tl.store(running_mean + channel, before + momentum * (middle - before), mask=inside)
    before = tl.load(running_var + channel, mask=inside, other=0.0)
    estimate = square / tl.maximum(rows - 1, 1)  # of all images' variance
    tl.store(running_var + channel, before + momentum * (estimate - before), mask=inside)


@triton.jit
def _apply(
    x, other, y, mean, scale, weight, bias, rows, width, added: tl.constexpr, cut: tl.constexpr,
    tile_rows: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    """Normalise a tile, add another map's where there is one, and cut off what is below zero if that is asked for."""
    row = tl.program_id(0).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    there = (row < rows)[:, None] & (channel < width)[None, :]
    at = row[:, None] * width + channel[None, :]
    w = tl.load(weight + channel, mask=channel < width, other=0.0).to(tl.float32)[None, :]
    b = tl.load(bias + channel, mask=channel < width, other=0.0).to(tl.float32)[None, :]
    value = _normal(x, at, there, mean, scale, channel, width) * w + b
    if added:
        value += tl.load(other + at, mask=there, other=0.0).to(tl.float32)
    if cut:
        value = tl.where(value < 0, 0.0, value)  # what is not a number must show
    tl.store(y + at, value.to(y.dtype.element_ty), mask=there)


@triton.jit
def _given(grad, out, normal, at, there, weight, bias, channel, width, added: tl.constexpr, cut: tl.constexpr):
    """Return the gradient before ReLU: where there was something to cut off, none."""
    if not cut:
        above = there
    elif added:
        above = tl.load(out + at, mask=there, other=0.0).to(tl.float32) > 0
    else:
        w = tl.load(weight + channel, mask=channel < width, other=0.0).to(tl.float32)[None, :]
        b = tl.load(bias + channel, mask=channel < width, other=0.0).to(tl.float32)[None, :]
        above = normal * w + b > 0
    return tl.load(grad + at, mask=there & above, other=0.0).to(tl.float32)


@triton.jit
def _sums(
    grad, x, out, mean, scale, weight, bias, parts, rows, width, added: tl.constexpr, cut: tl.constexpr,
    tile_rows: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    """Every n-th tile of rows: Σ g and Σ g·x̂, g before ReLU, (2, programs, C)."""
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    of_bias = tl.zeros((tile_rows, tile_width), tl.float32)
    of_weight = tl.zeros((tile_rows, tile_width), tl.float32)
    for start in range(tl.program_id(0) * tile_rows, rows, tl.num_programs(0) * tile_rows):
        row = (start + tl.arange(0, tile_rows)).to(tl.int64)
        there = (row < rows)[:, None] & (channel < width)[None, :]
        at = row[:, None] * width + channel[None, :]
        normal = _normal(x, at, there, mean, scale, channel, width)
        given = _given(grad, out, normal, at, there, weight, bias, channel, width, added, cut)
        of_bias += given
        of_weight += given * normal
    place = tl.program_id(0) * width + channel
    tl.store(parts + place, tl.sum(of_bias, 0), mask=channel < width)
    tl.store(parts + tl.num_programs(0) * width + place, tl.sum(of_weight, 0), mask=channel < width)


@triton.jit
def _spread(
    grad, x, out, grad_x, grad_other, mean, scale, weight, bias, totals, rows, width, share, added: tl.constexpr,
    cut: tl.constexpr, tile_rows: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    """Compute (g − share·(Σ g + x̂·Σ g·x̂))·s·w of a tile; ``share`` is 1/(B·H·W) with the batch's moments, else 0."""
    row = tl.program_id(0).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    there = (row < rows)[:, None] & (channel < width)[None, :]
    at = row[:, None] * width + channel[None, :]
    normal = _normal(x, at, there, mean, scale, channel, width)
    given = _given(grad, out, normal, at, there, weight, bias, channel, width, added, cut)
    if added:
        tl.store(grad_other + at, given.to(grad_other.dtype.element_ty), mask=there)
    inside = channel < width
    of_bias = tl.load(totals + channel, mask=inside, other=0.0)[None, :]
    of_weight = tl.load(totals + width + channel, mask=inside, other=0.0)[None, :]
    s = tl.load(scale + channel, mask=inside, other=0.0)[None, :]
    w = tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)[None, :]
    result = (given - share * (of_bias + normal * of_weight)) * s * w
    tl.store(grad_x + at, result.to(grad_x.dtype.element_ty), mask=there)


# ---- moments


@torch.no_grad()
def moments(x: Tensor, eps: float, running_mean: Tensor, running_var: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
    """Return μ and s of a batch, float32; move the running mean and variance, in place."""
    tiles = _rows(x)
    programs, _ = tiles.adders
    means, squares = torch.empty((2, programs, tiles.width), dtype=torch.float32, device=x.device).unbind()
    numbers = torch.empty(programs, dtype=torch.float32, device=x.device)
    _moments[tiles.adders](x, numbers, means, squares, tiles.rows, tiles.width, **tiles.tile)
    mean, scale = torch.empty((2, tiles.width), dtype=torch.float32, device=x.device).unbind()
    _finish[(triton.cdiv(tiles.width, 8),)](
        numbers, means, squares, mean, scale, running_mean, running_var, programs, tiles.rows, tiles.width, eps,
        momentum, tile_rows=triton.next_power_of_2(programs), tile_width=8,
    )  # fmt: skip
    return mean, scale


# ---- with what comes after


class _NormRelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, of_batch: bool, cut: bool
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias, mean, scale)
        ctx.of_batch, ctx.cut = of_batch, cut
        return _applied(x, Norm(mean, scale, weight, bias, of_batch), cut=cut)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, scale = ctx.saved_tensors
        norm = Norm(mean, scale, weight, bias, ctx.of_batch)
        of_x, _, of_weight, of_bias = _norm_gradients(gradients[0], x, norm, cut=ctx.cut)
        return of_x, of_weight, of_bias, None, None, None, None


class _NormReluConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor,
        of_batch: bool, window: Window,
    ) -> Tensor:  # fmt: skip
        norm = Norm(mean, scale, weight, bias, of_batch)
        ctx.save_for_backward(x, kernel, weight, bias, mean, scale)
        ctx.of_batch, ctx.window = of_batch, window
        return torch.ops.aten.convolution(_applied(x, norm), kernel, None, *_convolution(window))  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, weight, bias, mean, scale = ctx.saved_tensors
        norm = Norm(mean, scale, weight, bias, ctx.of_batch)
        needed = ctx.needs_input_grad
        wanted = [needed[0] or needed[2] or needed[3], needed[1], False]
        y = _applied(x, norm)
        of_y, of_kernel, _ = torch.ops.aten.convolution_backward(
            gradients[0], y, kernel, None, *_convolution(ctx.window), wanted
        )
        del y
        if of_y is None:
            return None, of_kernel, *[None] * 6
        of_x, _, of_weight, of_bias = _norm_gradients(of_y, x, norm)
        return of_x, of_kernel, of_weight, of_bias, None, None, None, None


class _NormAddRelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, other: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, of_batch: bool
    ) -> Tensor:
        out = _applied(x, Norm(mean, scale, weight, bias, of_batch), other)
        ctx.save_for_backward(x, out, weight, bias, mean, scale)
        ctx.of_batch = of_batch
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, out, weight, bias, mean, scale = ctx.saved_tensors
        norm = Norm(mean, scale, weight, bias, ctx.of_batch)
        of_x, of_other, of_weight, of_bias = _norm_gradients(gradients[0], x, norm, out)
        return of_x, of_other, of_weight, of_bias, None, None, None


def norm_relu(x: Tensor, norm: Norm, cut: bool = True) -> Tensor:
    """Return the normalised map, rectified unless ``cut`` is off; gradient flows to x, weight and bias."""
    out: Tensor = _NormRelu.apply(x, norm.weight, norm.bias, norm.mean, norm.scale, norm.of_batch, cut)
    return out


def norm_relu_conv(x: Tensor, norm: Norm, kernel: Tensor, window: Window) -> Tensor:
    """Return a convolution of the rectified, normalised map; gradient flows to x, kernel, weight and bias."""
    out: Tensor = _NormReluConv.apply(x, kernel, norm.weight, norm.bias, norm.mean, norm.scale, norm.of_batch, window)
    return out


def norm_add_relu(x: Tensor, norm: Norm, other: Tensor) -> Tensor:
    """Return the rectified sum of the normalised map and another; gradient flows to both, weight and bias."""
    out: Tensor = _NormAddRelu.apply(x, other, norm.weight, norm.bias, norm.mean, norm.scale, norm.of_batch)
    return out


def _applied(x: Tensor, norm: Norm, other: Tensor | None = None, cut: bool = True) -> Tensor:
    tiles = _rows(x)
    y = torch.empty_like(x)
    _apply[tiles.grid](
        x, x if other is None else other, y, norm.mean, norm.scale, norm.weight, norm.bias, tiles.rows, tiles.width,
        added=other is not None, cut=cut, **tiles.tile,
    )  # fmt: skip
    return y


def _norm_gradients(
    grad: Tensor, x: Tensor, norm: Norm, out: Tensor | None = None, cut: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of x, of what was added, of weight and of bias; ``out``, the sum's, says where ReLU cut."""
    tiles = _rows(x)
    grad = grad.contiguous(memory_format=torch.channels_last)
    added, above = out is not None, x if out is None else out
    parts = torch.empty((2, tiles.adders[0], tiles.width), dtype=torch.float32, device=x.device)
    _sums[tiles.adders](
        grad, x, above, norm.mean, norm.scale, norm.weight, norm.bias, parts, tiles.rows, tiles.width, added=added,
        cut=cut, **tiles.tile,
    )  # fmt: skip
    totals = parts.sum(1)
    of_x = torch.empty_like(x)
    of_other = torch.empty_like(x) if added else of_x
    _spread[tiles.grid](
        grad, x, above, of_x, of_other, norm.mean, norm.scale, norm.weight, norm.bias, totals, tiles.rows, tiles.width,
        1 / tiles.rows if norm.of_batch else 0.0, added=added, cut=cut, **tiles.tile,
    )  # fmt: skip
    of_bias, of_weight = totals.to(norm.weight.dtype).unbind()
    return of_x, of_other, of_weight, of_bias


def _convolution(window: Window) -> tuple[Any, ...]:
    """Return what aten's convolution takes after its tensors; it is not a transposed one."""
    return (*map(list, window[:3]), False, [0, 0], window.groups)


def _rows(x: Tensor) -> Rows:
    return rows_of(x, x.shape[1], CHANNELS)
