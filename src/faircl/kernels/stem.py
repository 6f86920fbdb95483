"""BatchNorm, ReLU and 3×3 max-pooling by two, as one: a ResNet's widest maps are read, and never written.

    out_n = max(0, max_{k ∈ window(n)} ŷ_k),   y = (x − μ)·s·w + b,   ŷ = y rounded to the type of x

Backward needs x and, for every pooled value, which of nine it was; torch keeps the normalised map and a 64-bit place
as well, twice of what x takes. Gradients are gathered and added up in a fixed order.

Shapes: x (B, C, H, W) and out (B, C, ⌈H/2⌉, ⌈W/2⌉), both channels_last; all else (C,).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.batch_norm import Norm

TILE = 2048
"""Numbers of a tile: as many pixels as that makes."""
PROGRAMS = 1024
"""Programs that add up, at most."""
NONE = tl.constexpr(9)
"""The choice where no value of a window is above zero."""


@triton.jit
def _channels(mean, scale, weight, bias, channel, width):
    """Load what the norm has for some channels."""
    there = channel < width
    m = tl.load(mean + channel, mask=there, other=0.0)[None, :]
    s = tl.load(scale + channel, mask=there, other=0.0)[None, :]
    w = tl.load(weight + channel, mask=there, other=0.0).to(tl.float32)[None, :]
    b = tl.load(bias + channel, mask=there, other=0.0).to(tl.float32)[None, :]
    return m, s, w, b


@triton.jit
def _pool(
    x, out, choice, mean, scale, weight, bias, count, height, columns, high, wide, width, pixels: tl.constexpr,
    channels: tl.constexpr,
):  # fmt: skip
    """Compute some pooled pixels, and which of nine each is."""
    n = tl.program_id(0).to(tl.int64) * pixels + tl.arange(0, pixels)
    channel = tl.arange(0, channels)
    there = (n < count)[:, None] & (channel < width)[None, :]
    image, row, column = n // (high * wide), (n // wide) % high, n % wide
    m, s, w, b = _channels(mean, scale, weight, bias, channel, width)
    best = tl.zeros((pixels, channels), tl.float32)
    chosen = tl.full((pixels, channels), NONE, tl.int32)
    for k in tl.static_range(9):
        i, j = 2 * row - 1 + k // 3, 2 * column - 1 + k % 3
        inside = there & ((i >= 0) & (i < height) & (j >= 0) & (j < columns))[:, None]
        at = ((image * height + i) * columns + j)[:, None] * width + channel[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        y = ((value - m) * s * w + b).to(x.dtype.element_ty).to(tl.float32)
        better = inside & ((y > best) | (y != y))  # what is not a number must show
        best = tl.where(better, y, best)
        chosen = tl.where(better, k, chosen)
    at = n[:, None] * width + channel[None, :]
    tl.store(out + at, best.to(out.dtype.element_ty), mask=there)
    tl.store(choice + at, chosen.to(tl.uint8), mask=there)


@triton.jit
def _sums(
    x, grad, choice, mean, scale, parts, count, height, columns, high, wide, width, pixels: tl.constexpr,
    channels: tl.constexpr,
):  # fmt: skip
    """Every n-th tile of pooled pixels: Σ g and Σ g·(x − μ)·s, (2, programs, C)."""
    channel = tl.arange(0, channels)
    m = tl.load(mean + channel, mask=channel < width, other=0.0)[None, :]
    s = tl.load(scale + channel, mask=channel < width, other=0.0)[None, :]
    of_bias = tl.zeros((pixels, channels), tl.float32)
    of_weight = tl.zeros((pixels, channels), tl.float32)
    for start in range(tl.program_id(0) * pixels, count, tl.num_programs(0) * pixels):
        n = (start + tl.arange(0, pixels)).to(tl.int64)
        there = (n < count)[:, None] & (channel < width)[None, :]
        image, row, column = n // (high * wide), (n // wide) % high, n % wide
        at = n[:, None] * width + channel[None, :]
        chosen = tl.load(choice + at, mask=there, other=9).to(tl.int32)
        taken = chosen < NONE
        given = tl.load(grad + at, mask=taken, other=0.0).to(tl.float32)
        i, j = (2 * row - 1)[:, None] + chosen // 3, (2 * column - 1)[:, None] + chosen % 3
        source = ((image * height)[:, None] + i) * columns + j
        value = tl.load(x + source * width + channel[None, :], mask=taken, other=0.0).to(tl.float32)
        of_bias += given
        of_weight += given * (value - m) * s
    place = tl.program_id(0) * width + channel
    tl.store(parts + place, tl.sum(of_bias, 0), mask=channel < width)
    tl.store(parts + tl.num_programs(0) * width + place, tl.sum(of_weight, 0), mask=channel < width)


@triton.jit
def _spread(
    x, grad, choice, grad_x, mean, scale, weight, totals, count, height, columns, high, wide, width, share,
    pixels: tl.constexpr, channels: tl.constexpr,
):  # fmt: skip
    """Compute (g − share·(Σ g + x̂·Σ g·x̂))·s·w of some pixels, x̂ = (x − μ)·s; g comes from windows that chose them.

    ``share`` is 1/(B·H·W) where μ and s are those of the batch, else 0.
    """
    n = tl.program_id(0).to(tl.int64) * pixels + tl.arange(0, pixels)
    channel = tl.arange(0, channels)
    there = (n < count)[:, None] & (channel < width)[None, :]
    image, row, column = n // (height * columns), (n // columns) % height, n % columns
    m, s, w, of_bias = _channels(mean, scale, weight, totals, channel, width)
    of_weight = tl.load(totals + width + channel, mask=channel < width, other=0.0)[None, :]
    given = tl.zeros((pixels, channels), tl.float32)
    for k in tl.static_range(4):  # a pixel lies in one window or two of either direction
        p, q = (row + k // 2) // 2, (column + k % 2) // 2
        new = (k // 2 <= row % 2) & (k % 2 <= column % 2) & (p < high) & (q < wide)
        own = (row - 2 * p + 1) * 3 + column - 2 * q + 1
        at = ((image * high + p) * wide + q)[:, None] * width + channel[None, :]
        chosen = tl.load(choice + at, mask=there & new[:, None], other=9).to(tl.int32)
        given += tl.load(grad + at, mask=there & new[:, None] & (chosen == own[:, None]), other=0.0).to(tl.float32)
    at = n[:, None] * width + channel[None, :]
    normal = (tl.load(x + at, mask=there, other=0.0).to(tl.float32) - m) * s
    result = (given - share * (of_bias + normal * of_weight)) * s * w
    tl.store(grad_x + at, result.to(grad_x.dtype.element_ty), mask=there)


class _NormReluPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, of_batch: bool
    ) -> Tensor:
        images, width, height, columns = x.shape
        high, wide = (height + 1) // 2, (columns + 1) // 2
        out = _channels_last((images, width, high, wide), x.dtype, x.device)
        choice = _channels_last(out.shape, torch.uint8, x.device)
        tile, count = _tile(width), images * high * wide
        _pool[(triton.cdiv(count, tile["pixels"]),)](
            x, out, choice, mean, scale, weight, bias, count, height, columns, high, wide, width, **tile
        )  # fmt: skip
        ctx.save_for_backward(x, choice, weight, mean, scale)
        ctx.of_batch = of_batch
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, choice, weight, mean, scale = ctx.saved_tensors
        grad = gradients[0].contiguous(memory_format=torch.channels_last)
        images, width, height, columns = x.shape
        high, wide = choice.shape[-2:]
        tile, count = _tile(width), images * high * wide
        programs = min(triton.cdiv(count, tile["pixels"]), PROGRAMS)
        parts = torch.empty((2, programs, width), dtype=torch.float32, device=x.device)
        _sums[(programs,)](
            x, grad, choice, mean, scale, parts, count, height, columns, high, wide, width, **tile
        )  # fmt: skip
        totals = parts.sum(1)
        grad_x, count = torch.empty_like(x), images * height * columns
        _spread[(triton.cdiv(count, tile["pixels"]),)](
            x, grad, choice, grad_x, mean, scale, weight, totals, count, height, columns, high, wide, width,
            1 / count if ctx.of_batch else 0.0, **tile
        )  # fmt: skip
        of_bias, of_weight = totals.to(weight.dtype).unbind()
        return grad_x, of_weight, of_bias, None, None, None


def norm_relu_pool(x: Tensor, norm: Norm) -> Tensor:
    """Return max-pooled, rectified, normalised maps; gradient flows to x, weight and bias."""
    out: Tensor = _NormReluPool.apply(x, norm.weight, norm.bias, norm.mean, norm.scale, norm.of_batch)
    return out


def _channels_last(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)


def _tile(width: int) -> dict[str, int]:
    channels = triton.next_power_of_2(width)
    return {"pixels": max(TILE // channels, 1), "channels": channels}
