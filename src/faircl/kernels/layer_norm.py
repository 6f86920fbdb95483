"""Layer normalisation of short rows, in any precision, straight to the type that the next layer wants.

torch gives a row of 64 channels a whole block of threads; here a program takes many rows at once. In backward every
program adds up the gradients of weight and bias over its own rows; torch adds up the programs, in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = 4096
"""Numbers of a tile: as many rows as that makes."""
PROGRAMS = 1024
"""Programs of the backward kernel, at most."""


@triton.jit
def _normalise(x, weight, bias, y, mean, scale, rows, width, eps, tile_rows: tl.constexpr, tile_width: tl.constexpr):
    """Compute y = (x − mean)·scale·weight + bias, scale = 1 / √(variance + eps), for some rows."""
    row = tl.program_id(0).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    column = tl.arange(0, tile_width)
    inside = (column < width)[None, :]
    there = (row < rows)[:, None] & inside
    at = row[:, None] * width + column[None, :]
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    middle = tl.sum(value, 1) / width
    apart = tl.where(inside, value - middle[:, None], 0.0)
    factor = tl.rsqrt(tl.sum(apart * apart, 1) / width + eps)
    w = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    result = apart * factor[:, None] * w[None, :] + b[None, :]
    tl.store(y + at, result.to(y.dtype.element_ty), mask=there)
    tl.store(mean + row, middle, mask=row < rows)
    tl.store(scale + row, factor, mask=row < rows)


@triton.jit
def _gradients(
    grad, x, weight, mean, scale, grad_x, grad_weight, grad_bias, rows, width, tile_rows: tl.constexpr,
    tile_width: tl.constexpr,
):  # fmt: skip
    """Every n-th tile of rows: their gradient, and their share (programs, width) in those of weight and bias."""
    column = tl.arange(0, tile_width)
    inside = (column < width)[None, :]
    w = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    of_weight = tl.zeros((tile_rows, tile_width), tl.float32)
    of_bias = tl.zeros((tile_rows, tile_width), tl.float32)
    for start in range(tl.program_id(0) * tile_rows, rows, tl.num_programs(0) * tile_rows):
        row = (start + tl.arange(0, tile_rows)).to(tl.int64)
        there = (row < rows)[:, None] & inside
        at = row[:, None] * width + column[None, :]
        given = tl.load(grad + at, mask=there, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
        middle = tl.load(mean + row, mask=row < rows, other=0.0)
        factor = tl.load(scale + row, mask=row < rows, other=0.0)
        normal = tl.where(inside, (value - middle[:, None]) * factor[:, None], 0.0)
        of_bias += given
        of_weight += given * normal
        given *= w[None, :]
        along, across = tl.sum(given * normal, 1) / width, tl.sum(given, 1) / width
        result = (given - across[:, None] - normal * along[:, None]) * factor[:, None]
        tl.store(grad_x + at, result.to(grad_x.dtype.element_ty), mask=there)
    place = tl.program_id(0) * width + column
    tl.store(grad_weight + place, tl.sum(of_weight, 0), mask=column < width)
    tl.store(grad_bias + place, tl.sum(of_bias, 0), mask=column < width)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        y = torch.empty(x.shape, dtype=dtype, device=x.device)
        mean, scale = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        tile = _tile(width)
        _normalise[(triton.cdiv(rows, tile["tile_rows"]),)](
            x, weight, bias, y, mean, scale, rows, width, eps, **tile
        )  # fmt: skip
        ctx.save_for_backward(x, weight, mean, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        width, rows, tile = x.shape[-1], len(mean), _tile(x.shape[-1])
        programs = min(triton.cdiv(rows, tile["tile_rows"]), PROGRAMS)
        grad_x = torch.empty_like(x)
        parts = torch.empty((2, programs, width), dtype=torch.float32, device=x.device)
        _gradients[(programs,)](
            gradients[0].contiguous(), x, weight, mean, scale, grad_x, parts[0], parts[1], rows, width, **tile
        )  # fmt: skip
        of_weight, of_bias = parts.sum(1).to(weight.dtype).unbind()
        return grad_x, of_weight, of_bias, None, None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Normalise the rows of x (…, D), computed in float32 and rounded once to a type; weight and bias (D,)."""
    y: Tensor = _LayerNorm.apply(x, weight, bias, eps, dtype)
    return y


def _tile(width: int) -> dict[str, int]:
    wide = triton.next_power_of_2(width)
    return {"tile_rows": max(TILE // wide, 1), "tile_width": wide}
