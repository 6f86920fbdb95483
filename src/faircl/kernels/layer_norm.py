"""Layer normalisation of short rows, with an output dtype of choice.

torch uses a whole block of threads for a row of 64 channels; here a program normalises many rows at once. In the
backward pass every program sums the gradients of weight and bias over its rows, and torch sums the results of the
programs, in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE_SIZE = 4096
"""Number of elements of a tile of whole rows."""
MAX_PROGRAMS = 1024
"""Largest number of programs of the backward kernel."""


@triton.jit
def _normalise(x, weight, bias, y, mean, scale, rows, width, eps, tile_rows: tl.constexpr, tile_width: tl.constexpr):
    """Compute y = (x − mean)·scale·weight + bias, scale = 1 / √(variance + eps), of a tile of rows."""
    row = tl.program_id(0).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    column = tl.arange(0, tile_width)
    column_mask = (column < width)[None, :]
    mask = (row < rows)[:, None] & column_mask
    offsets = row[:, None] * width + column[None, :]
    value = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    row_mean = tl.sum(value, 1) / width
    deviation = tl.where(column_mask, value - row_mean[:, None], 0.0)
    row_scale = tl.rsqrt(tl.sum(deviation * deviation, 1) / width + eps)
    w = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    result = deviation * row_scale[:, None] * w[None, :] + b[None, :]
    tl.store(y + offsets, result.to(y.dtype.element_ty), mask=mask)
    tl.store(mean + row, row_mean, mask=row < rows)
    tl.store(scale + row, row_scale, mask=row < rows)


@triton.jit
def _backward(
    grad, x, weight, mean, scale, grad_x, grad_weight, grad_bias, rows, width, tile_rows: tl.constexpr,
    tile_width: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of every n-th tile of rows, and its sums for weight and bias, (programs, width) each."""
    column = tl.arange(0, tile_width)
    column_mask = (column < width)[None, :]
    w = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    sum_weight = tl.zeros((tile_rows, tile_width), tl.float32)
    sum_bias = tl.zeros((tile_rows, tile_width), tl.float32)
    for start in range(tl.program_id(0) * tile_rows, rows, tl.num_programs(0) * tile_rows):
        row = (start + tl.arange(0, tile_rows)).to(tl.int64)
        mask = (row < rows)[:, None] & column_mask
        offsets = row[:, None] * width + column[None, :]
        grad_y = tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32)
        value = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
        row_mean = tl.load(mean + row, mask=row < rows, other=0.0)
        row_scale = tl.load(scale + row, mask=row < rows, other=0.0)
        normalised = tl.where(column_mask, (value - row_mean[:, None]) * row_scale[:, None], 0.0)
        sum_bias += grad_y
        sum_weight += grad_y * normalised
        grad_y *= w[None, :]
        mean_grad_normalised, mean_grad = tl.sum(grad_y * normalised, 1) / width, tl.sum(grad_y, 1) / width
        result = (grad_y - mean_grad[:, None] - normalised * mean_grad_normalised[:, None]) * row_scale[:, None]
        tl.store(grad_x + offsets, result.to(grad_x.dtype.element_ty), mask=mask)
    partial_offsets = tl.program_id(0) * width + column
    tl.store(grad_weight + partial_offsets, tl.sum(sum_weight, 0), mask=column < width)
    tl.store(grad_bias + partial_offsets, tl.sum(sum_bias, 0), mask=column < width)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        y = torch.empty(x.shape, dtype=dtype, device=x.device)
        mean, scale = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        tile = _tile(width)
        _normalise[(triton.cdiv(rows, tile["tile_rows"]),)](x, weight, bias, y, mean, scale, rows, width, eps, **tile)
        ctx.save_for_backward(x, weight, mean, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        width, rows, tile = x.shape[-1], len(mean), _tile(x.shape[-1])
        programs = min(triton.cdiv(rows, tile["tile_rows"]), MAX_PROGRAMS)
        grad_x = torch.empty_like(x)
        partial = torch.empty((2, programs, width), dtype=torch.float32, device=x.device)
        _backward[(programs,)](
            gradients[0].contiguous(), x, weight, mean, scale, grad_x, partial[0], partial[1], rows, width, **tile,
        )  # fmt: skip
        grad_weight, grad_bias = partial.sum(1).to(weight.dtype).unbind()
        return grad_x, grad_weight, grad_bias, None, None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Normalise the rows of x (…, D) in float32 and round the result to ``dtype``; weight and bias (D,)."""
    y: Tensor = _LayerNorm.apply(x, weight, bias, eps, dtype)
    return y


def _tile(width: int) -> dict[str, int]:
    tile_width = triton.next_power_of_2(width)
    return {"tile_rows": max(TILE_SIZE // tile_width, 1), "tile_width": tile_width}
