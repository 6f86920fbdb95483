"""BatchNorm, ReLU and 3×3 max-pooling of stride 2 in one kernel: the stem of a ResNet.

    out_n = max(0, max_{k ∈ window(n)} ŷ_k),   y = (x − μ)·s·w + b,   ŷ = y rounded to the dtype of x

The normalised map, the largest of a ResNet, is never written. The backward pass needs x and the position of every
maximum in its window, one byte; torch also saves the normalised map and 64-bit positions, twice the memory of x.
Gradients are summed in a fixed order.

Shapes: x (B, C, H, W) and out (B, C, ⌈H/2⌉, ⌈W/2⌉), both channels_last; all others (C,).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.batch_norm import NormState

TILE_SIZE = 2048
"""Number of elements of a tile of pixels and channels."""
MAX_PROGRAMS = 1024
"""Largest number of programs of a reduction."""
NO_POSITION = tl.constexpr(9)
"""The position 0 … 8 of a maximum has this value where no value of the window is positive."""

# Names: in_h, in_w is the size of x, out_h, out_w that of the output; a position k is (k // 3, k % 3) in the window;
# x̂ = (x − μ)·s is ``normalised``; num_c, num_p are numbers of channels and pixels, tile_c, tile_p those of a tile.


@triton.jit
def _load_norm(mean, scale, weight, bias, channel, num_c):
    """Load μ, s, w and b of a tile of channels."""
    mask = channel < num_c
    m = tl.load(mean + channel, mask=mask, other=0.0)[None, :]
    s = tl.load(scale + channel, mask=mask, other=0.0)[None, :]
    w = tl.load(weight + channel, mask=mask, other=0.0).to(tl.float32)[None, :]
    b = tl.load(bias + channel, mask=mask, other=0.0).to(tl.float32)[None, :]
    return m, s, w, b


@triton.jit
def _norm_relu_pool(
    x, out, argmax, mean, scale, weight, bias, num_p, in_h, in_w, out_h, out_w, num_c, tile_p: tl.constexpr,
    tile_c: tl.constexpr,
):  # fmt: skip
    """Compute a tile of output pixels, and the position of each maximum in its window."""
    pixel = tl.program_id(0).to(tl.int64) * tile_p + tl.arange(0, tile_p)
    channel = tl.arange(0, tile_c)
    mask = (pixel < num_p)[:, None] & (channel < num_c)[None, :]
    image, row, column = pixel // (out_h * out_w), (pixel // out_w) % out_h, pixel % out_w
    m, s, w, b = _load_norm(mean, scale, weight, bias, channel, num_c)
    best = tl.zeros((tile_p, tile_c), tl.float32)
    position = tl.full((tile_p, tile_c), NO_POSITION, tl.int32)
    for k in tl.static_range(9):
        i, j = 2 * row - 1 + k // 3, 2 * column - 1 + k % 3
        window_mask = mask & ((i >= 0) & (i < in_h) & (j >= 0) & (j < in_w))[:, None]
        offsets = ((image * in_h + i) * in_w + j)[:, None] * num_c + channel[None, :]
        value = tl.load(x + offsets, mask=window_mask, other=0.0).to(tl.float32)
        y = ((value - m) * s * w + b).to(x.dtype.element_ty).to(tl.float32)
        greater = window_mask & ((y > best) | (y != y))  # keeps NaN
        best = tl.where(greater, y, best)
        position = tl.where(greater, k, position)
    offsets = pixel[:, None] * num_c + channel[None, :]
    tl.store(out + offsets, best.to(out.dtype.element_ty), mask=mask)
    tl.store(argmax + offsets, position.to(tl.uint8), mask=mask)


@triton.jit
def _partial_grad_sums(
    x, grad, argmax, mean, scale, partial, num_p, in_h, in_w, out_h, out_w, num_c, tile_p: tl.constexpr,
    tile_c: tl.constexpr,
):  # fmt: skip
    """Compute Σ g and Σ g·x̂ over every n-th tile of output pixels: (2, programs, C)."""
    channel = tl.arange(0, tile_c)
    m = tl.load(mean + channel, mask=channel < num_c, other=0.0)[None, :]
    s = tl.load(scale + channel, mask=channel < num_c, other=0.0)[None, :]
    grad_bias = tl.zeros((tile_p, tile_c), tl.float32)
    grad_weight = tl.zeros((tile_p, tile_c), tl.float32)
    for start in range(tl.program_id(0) * tile_p, num_p, tl.num_programs(0) * tile_p):
        pixel = (start + tl.arange(0, tile_p)).to(tl.int64)
        mask = (pixel < num_p)[:, None] & (channel < num_c)[None, :]
        image, row, column = pixel // (out_h * out_w), (pixel // out_w) % out_h, pixel % out_w
        offsets = pixel[:, None] * num_c + channel[None, :]
        position = tl.load(argmax + offsets, mask=mask, other=9).to(tl.int32)
        has_gradient = position < NO_POSITION
        grad_y = tl.load(grad + offsets, mask=has_gradient, other=0.0).to(tl.float32)
        i, j = (2 * row - 1)[:, None] + position // 3, (2 * column - 1)[:, None] + position % 3
        source_pixel = ((image * in_h)[:, None] + i) * in_w + j
        value = tl.load(x + source_pixel * num_c + channel[None, :], mask=has_gradient, other=0.0).to(tl.float32)
        grad_bias += grad_y
        grad_weight += grad_y * (value - m) * s
    partial_offsets = tl.program_id(0) * num_c + channel
    tl.store(partial + partial_offsets, tl.sum(grad_bias, 0), mask=channel < num_c)
    tl.store(partial + tl.num_programs(0) * num_c + partial_offsets, tl.sum(grad_weight, 0), mask=channel < num_c)


@triton.jit
def _input_gradient(
    x, grad, argmax, grad_x, mean, scale, weight, grad_sums, num_p, in_h, in_w, out_h, out_w, num_c, inverse_count,
    tile_p: tl.constexpr, tile_c: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a tile of x, (g − inverse_count·(Σ g + x̂·Σ g·x̂))·s·w.

    g is the sum of the gradients of the windows whose maximum the pixel is. ``inverse_count`` is 1/(B·H·W) if μ and s
    are statistics of the batch, else 0.
    """
    pixel = tl.program_id(0).to(tl.int64) * tile_p + tl.arange(0, tile_p)
    channel = tl.arange(0, tile_c)
    mask = (pixel < num_p)[:, None] & (channel < num_c)[None, :]
    image, row, column = pixel // (in_h * in_w), (pixel // in_w) % in_h, pixel % in_w
    m, s, w, grad_bias = _load_norm(mean, scale, weight, grad_sums, channel, num_c)
    grad_weight = tl.load(grad_sums + num_c + channel, mask=channel < num_c, other=0.0)[None, :]
    grad_y = tl.zeros((tile_p, tile_c), tl.float32)
    for k in tl.static_range(4):  # a pixel is in one or two windows along each axis
        w_row, w_col = (row + k // 2) // 2, (column + k % 2) // 2
        in_window = (k // 2 <= row % 2) & (k % 2 <= column % 2) & (w_row < out_h) & (w_col < out_w)
        own_position = (row - 2 * w_row + 1) * 3 + column - 2 * w_col + 1
        offsets = ((image * out_h + w_row) * out_w + w_col)[:, None] * num_c + channel[None, :]
        position = tl.load(argmax + offsets, mask=mask & in_window[:, None], other=9).to(tl.int32)
        grad_y += tl.load(
            grad + offsets, mask=mask & in_window[:, None] & (position == own_position[:, None]), other=0.0
        ).to(tl.float32)
    offsets = pixel[:, None] * num_c + channel[None, :]
    normalised = (tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32) - m) * s
    result = (grad_y - inverse_count * (grad_bias + normalised * grad_weight)) * s * w
    tl.store(grad_x + offsets, result.to(grad_x.dtype.element_ty), mask=mask)


class _NormReluPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, batch_stats: bool
    ) -> Tensor:
        images, num_c, in_h, in_w = x.shape
        out_h, out_w = (in_h + 1) // 2, (in_w + 1) // 2
        out = _channels_last((images, num_c, out_h, out_w), x.dtype, x.device)
        argmax = _channels_last(out.shape, torch.uint8, x.device)
        tile, num_p = _tile(num_c), images * out_h * out_w
        _norm_relu_pool[(triton.cdiv(num_p, tile["tile_p"]),)](
            x, out, argmax, mean, scale, weight, bias, num_p, in_h, in_w, out_h, out_w, num_c, **tile,
        )  # fmt: skip
        ctx.save_for_backward(x, argmax, weight, mean, scale)
        ctx.batch_stats = batch_stats
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, argmax, weight, mean, scale = ctx.saved_tensors
        grad = gradients[0].contiguous(memory_format=torch.channels_last)
        images, num_c, in_h, in_w = x.shape
        out_h, out_w = argmax.shape[-2:]
        tile, num_p = _tile(num_c), images * out_h * out_w
        programs = min(triton.cdiv(num_p, tile["tile_p"]), MAX_PROGRAMS)
        partial = torch.empty((2, programs, num_c), dtype=torch.float32, device=x.device)
        _partial_grad_sums[(programs,)](
            x, grad, argmax, mean, scale, partial, num_p, in_h, in_w, out_h, out_w, num_c, **tile,
        )  # fmt: skip
        grad_sums = partial.sum(1)
        grad_x, num_p = torch.empty_like(x), images * in_h * in_w
        _input_gradient[(triton.cdiv(num_p, tile["tile_p"]),)](
            x, grad, argmax, grad_x, mean, scale, weight, grad_sums, num_p, in_h, in_w, out_h, out_w, num_c,
            1 / num_p if ctx.batch_stats else 0.0, **tile,
        )  # fmt: skip
        grad_bias, grad_weight = grad_sums.to(weight.dtype).unbind()
        return grad_x, grad_weight, grad_bias, None, None, None


def norm_relu_pool(x: Tensor, norm: NormState) -> Tensor:
    """Return max_pool(relu(norm(x))); gradients flow to x, weight and bias."""
    out: Tensor = _NormReluPool.apply(x, norm.weight, norm.bias, norm.mean, norm.scale, norm.batch_stats)
    return out


def _channels_last(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)


def _tile(num_c: int) -> dict[str, int]:
    tile_c = triton.next_power_of_2(num_c)
    return {"tile_p": max(TILE_SIZE // tile_c, 1), "tile_c": tile_c}
