"""BatchNorm fused with the operations after it: ReLU, ReLU and a convolution, or a residual sum and ReLU.

    y = max(0, (x − μ)·s·w + b),   out = max(0, (x − μ)·s·w + b + residual),   s = 1/√(variance + ε)

y is needed in the backward pass as the input of the convolution and the output of ReLU. It is recomputed from x instead
of saved, which saves a sixth of the memory of a ResNet. Norm, sum and ReLU are one pass over the map instead of three.
Sums are taken in a fixed order.

Shapes: maps (B, C, H, W) in channels_last, as rows (B·H·W, C); all others (C,).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.row_tiles import RowTiling, row_tiling

MAX_CHANNELS = 128
"""Largest number of channels of a tile: 256 bytes per row in 16 bits."""

# Names: x̂ = (x − μ)·s is ``normalised``; ``rows`` is the number of pixels of all images, ``num_c`` that of channels;
# ``partial`` are the results of every program.


class NormState(NamedTuple):
    """μ, s, w and b, (C,) each, and whether μ and s are statistics of the batch, through which gradients flow."""

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    batch_stats: bool


class ConvGeometry(NamedTuple):
    """The geometry of a convolution."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


@triton.jit
def _load_normalised(x, offsets, mask, mean, scale, channel, num_c):
    """Return x̂ = (x − μ)·s of a tile."""
    m = tl.load(mean + channel, mask=channel < num_c, other=0.0)[None, :]
    s = tl.load(scale + channel, mask=channel < num_c, other=0.0)[None, :]
    return (tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32) - m) * s


@triton.jit
def _partial_moments(x, row_counts, means, sq_devs, rows, num_c, tile_rows: tl.constexpr, tile_width: tl.constexpr):
    """Compute number, mean and Σ (x − mean)² of every n-th tile of rows by Welford's recurrence: (programs, C)."""
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    count = tl.zeros((tile_rows,), tl.float32)
    mean = tl.zeros((tile_rows, tile_width), tl.float32)
    sq_dev = tl.zeros((tile_rows, tile_width), tl.float32)
    for start in range(tl.program_id(0) * tile_rows, rows, tl.num_programs(0) * tile_rows):
        row = (start + tl.arange(0, tile_rows)).to(tl.int64)
        mask = (row < rows)[:, None] & (channel < num_c)[None, :]
        value = tl.load(x + row[:, None] * num_c + channel[None, :], mask=mask, other=0.0).to(tl.float32)
        count += tl.where(row < rows, 1.0, 0.0)
        dev = tl.where(mask, value - mean, 0.0)
        mean += dev * (1 / tl.maximum(count, 1.0))[:, None]
        sq_dev += dev * tl.where(mask, value - mean, 0.0)
    total = tl.sum(count, 0)
    combined_mean = tl.sum(mean * count[:, None], 0) / total
    dev = mean - combined_mean[None, :]
    partial_offsets = tl.program_id(0) * num_c + channel
    tl.store(means + partial_offsets, combined_mean, mask=channel < num_c)
    tl.store(sq_devs + partial_offsets, tl.sum(sq_dev + dev * dev * count[:, None], 0), mask=channel < num_c)
    tl.store(row_counts + tl.program_id(0), total)


@triton.jit
def _combine_moments(
    row_counts, means, sq_devs, mean, scale, running_mean, running_var, programs, rows, num_c, eps, momentum,
    tile_rows: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    """Combine the moments of all programs, and update the running mean and variance."""
    channel = tl.program_id(0) * tile_width + tl.arange(0, tile_width)
    program = tl.arange(0, tile_rows)
    mask = (program < programs)[:, None] & (channel < num_c)[None, :]
    offsets = program[:, None] * num_c + channel[None, :]
    count = tl.load(row_counts + program, mask=program < programs, other=0.0)[:, None]
    partial_means = tl.load(means + offsets, mask=mask, other=0.0)
    combined_mean = tl.sum(partial_means * count, 0) / rows
    dev = partial_means - combined_mean[None, :]
    sq_dev = tl.sum(tl.load(sq_devs + offsets, mask=mask, other=0.0) + dev * dev * count, 0)
    c_mask = channel < num_c
    tl.store(mean + channel, combined_mean, mask=c_mask)
    tl.store(scale + channel, tl.rsqrt(sq_dev / rows + eps), mask=c_mask)
    previous = tl.load(running_mean + channel, mask=c_mask, other=0.0)
    tl.store(running_mean + channel, previous + momentum * (combined_mean - previous), mask=c_mask)
    previous = tl.load(running_var + channel, mask=c_mask, other=0.0)
    unbiased_variance = sq_dev / tl.maximum(rows - 1, 1)  # as torch.nn.BatchNorm2d tracks it
    tl.store(running_var + channel, previous + momentum * (unbiased_variance - previous), mask=c_mask)


@triton.jit
def _normalise(
    x, residual, y, mean, scale, weight, bias, rows, num_c, has_residual: tl.constexpr, relu: tl.constexpr,
    tile_rows: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    """Normalise a tile; add the residual if ``has_residual``; apply ReLU if ``relu``."""
    row = tl.program_id(0).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    mask = (row < rows)[:, None] & (channel < num_c)[None, :]
    offsets = row[:, None] * num_c + channel[None, :]
    w = tl.load(weight + channel, mask=channel < num_c, other=0.0).to(tl.float32)[None, :]
    b = tl.load(bias + channel, mask=channel < num_c, other=0.0).to(tl.float32)[None, :]
    value = _load_normalised(x, offsets, mask, mean, scale, channel, num_c) * w + b
    if has_residual:
        value += tl.load(residual + offsets, mask=mask, other=0.0).to(tl.float32)
    if relu:
        value = tl.where(value < 0, 0.0, value)  # keeps NaN
    tl.store(y + offsets, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _relu_gradient(
    grad, out, normalised, offsets, mask, weight, bias, channel, num_c, has_residual: tl.constexpr, relu: tl.constexpr,
):  # fmt: skip
    """Return the gradient of the input of ReLU: zero where ReLU returned zero."""
    if not relu:
        positive = mask
    elif has_residual:
        positive = tl.load(out + offsets, mask=mask, other=0.0).to(tl.float32) > 0
    else:
        w = tl.load(weight + channel, mask=channel < num_c, other=0.0).to(tl.float32)[None, :]
        b = tl.load(bias + channel, mask=channel < num_c, other=0.0).to(tl.float32)[None, :]
        positive = normalised * w + b > 0
    return tl.load(grad + offsets, mask=mask & positive, other=0.0).to(tl.float32)


@triton.jit
def _partial_grad_sums(
    grad, x, out, mean, scale, weight, bias, partial, rows, num_c, has_residual: tl.constexpr, relu: tl.constexpr,
    tile_rows: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    """Compute Σ g and Σ g·x̂ over every n-th tile of rows, g being the gradient before ReLU: (2, programs, C)."""
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    grad_bias = tl.zeros((tile_rows, tile_width), tl.float32)
    grad_weight = tl.zeros((tile_rows, tile_width), tl.float32)
    for start in range(tl.program_id(0) * tile_rows, rows, tl.num_programs(0) * tile_rows):
        row = (start + tl.arange(0, tile_rows)).to(tl.int64)
        mask = (row < rows)[:, None] & (channel < num_c)[None, :]
        offsets = row[:, None] * num_c + channel[None, :]
        normalised = _load_normalised(x, offsets, mask, mean, scale, channel, num_c)
        grad_y = _relu_gradient(grad, out, normalised, offsets, mask, weight, bias, channel, num_c, has_residual, relu)
        grad_bias += grad_y
        grad_weight += grad_y * normalised
    partial_offsets = tl.program_id(0) * num_c + channel
    tl.store(partial + partial_offsets, tl.sum(grad_bias, 0), mask=channel < num_c)
    tl.store(partial + tl.num_programs(0) * num_c + partial_offsets, tl.sum(grad_weight, 0), mask=channel < num_c)


@triton.jit
def _input_gradient(
    grad, x, out, grad_x, grad_residual, mean, scale, weight, bias, grad_sums, rows, num_c, inverse_count,
    has_residual: tl.constexpr, relu: tl.constexpr, tile_rows: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of x, (g − inverse_count·(Σ g + x̂·Σ g·x̂))·s·w, of a tile.

    ``inverse_count`` is 1/(B·H·W) if μ and s are statistics of the batch, else 0.
    """
    row = tl.program_id(0).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    channel = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    mask = (row < rows)[:, None] & (channel < num_c)[None, :]
    offsets = row[:, None] * num_c + channel[None, :]
    normalised = _load_normalised(x, offsets, mask, mean, scale, channel, num_c)
    grad_y = _relu_gradient(grad, out, normalised, offsets, mask, weight, bias, channel, num_c, has_residual, relu)
    if has_residual:
        tl.store(grad_residual + offsets, grad_y.to(grad_residual.dtype.element_ty), mask=mask)
    c_mask = channel < num_c
    grad_bias = tl.load(grad_sums + channel, mask=c_mask, other=0.0)[None, :]
    grad_weight = tl.load(grad_sums + num_c + channel, mask=c_mask, other=0.0)[None, :]
    s = tl.load(scale + channel, mask=c_mask, other=0.0)[None, :]
    w = tl.load(weight + channel, mask=c_mask, other=0.0).to(tl.float32)[None, :]
    result = (grad_y - inverse_count * (grad_bias + normalised * grad_weight)) * s * w
    tl.store(grad_x + offsets, result.to(grad_x.dtype.element_ty), mask=mask)


# ---- moments


@torch.no_grad()
def moments(x: Tensor, eps: float, running_mean: Tensor, running_var: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
    """Return μ and s of a batch in float32; update the running mean and variance in place."""
    tiling = _tiling(x)
    programs, _ = tiling.reduction_grid
    means, sq_devs = torch.empty((2, programs, tiling.width), dtype=torch.float32, device=x.device).unbind()
    row_counts = torch.empty(programs, dtype=torch.float32, device=x.device)
    _partial_moments[tiling.reduction_grid](x, row_counts, means, sq_devs, tiling.rows, tiling.width, **tiling.tile)
    mean, scale = torch.empty((2, tiling.width), dtype=torch.float32, device=x.device).unbind()
    _combine_moments[(triton.cdiv(tiling.width, 8),)](
        row_counts, means, sq_devs, mean, scale, running_mean, running_var, programs, tiling.rows, tiling.width, eps,
        momentum, tile_rows=triton.next_power_of_2(programs), tile_width=8,
    )  # fmt: skip
    return mean, scale


# ---- fused operations


class _NormRelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, batch_stats: bool, relu: bool
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias, mean, scale)
        ctx.batch_stats, ctx.relu = batch_stats, relu
        return _run_normalise(x, NormState(mean, scale, weight, bias, batch_stats), relu=relu)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, scale = ctx.saved_tensors
        norm = NormState(mean, scale, weight, bias, ctx.batch_stats)
        grad_x, _, grad_weight, grad_bias = _norm_gradients(gradients[0], x, norm, relu=ctx.relu)
        return grad_x, grad_weight, grad_bias, None, None, None, None


class _NormReluConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor,
        batch_stats: bool, geometry: ConvGeometry,
    ) -> Tensor:  # fmt: skip
        norm = NormState(mean, scale, weight, bias, batch_stats)
        ctx.save_for_backward(x, kernel, weight, bias, mean, scale)
        ctx.batch_stats, ctx.geometry = batch_stats, geometry
        return torch.ops.aten.convolution(_run_normalise(x, norm), kernel, None, *_aten_arguments(geometry))  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, weight, bias, mean, scale = ctx.saved_tensors
        norm = NormState(mean, scale, weight, bias, ctx.batch_stats)
        needed = ctx.needs_input_grad
        output_mask = [needed[0] or needed[2] or needed[3], needed[1], False]
        y = _run_normalise(x, norm)
        grad_y, grad_kernel, _ = torch.ops.aten.convolution_backward(
            gradients[0], y, kernel, None, *_aten_arguments(ctx.geometry), output_mask
        )
        del y
        if grad_y is None:
            return None, grad_kernel, *[None] * 6
        grad_x, _, grad_weight, grad_bias = _norm_gradients(grad_y, x, norm)
        return grad_x, grad_kernel, grad_weight, grad_bias, None, None, None, None


class _NormAddRelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        scale: Tensor,
        batch_stats: bool,
    ) -> Tensor:
        out = _run_normalise(x, NormState(mean, scale, weight, bias, batch_stats), residual)
        ctx.save_for_backward(x, out, weight, bias, mean, scale)
        ctx.batch_stats = batch_stats
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, out, weight, bias, mean, scale = ctx.saved_tensors
        norm = NormState(mean, scale, weight, bias, ctx.batch_stats)
        grad_x, grad_residual, grad_weight, grad_bias = _norm_gradients(gradients[0], x, norm, out)
        return grad_x, grad_residual, grad_weight, grad_bias, None, None, None


def norm_relu(x: Tensor, norm: NormState, relu: bool = True) -> Tensor:
    """Return relu(norm(x)), or norm(x) without ``relu``; gradients flow to x, weight and bias."""
    out: Tensor = _NormRelu.apply(x, norm.weight, norm.bias, norm.mean, norm.scale, norm.batch_stats, relu)
    return out


def norm_relu_conv(x: Tensor, norm: NormState, kernel: Tensor, geometry: ConvGeometry) -> Tensor:
    """Return conv(relu(norm(x))); gradients flow to x, kernel, weight and bias."""
    out: Tensor = _NormReluConv.apply(
        x, kernel, norm.weight, norm.bias, norm.mean, norm.scale, norm.batch_stats, geometry
    )
    return out


def norm_add_relu(x: Tensor, norm: NormState, residual: Tensor) -> Tensor:
    """Return relu(norm(x) + residual); gradients flow to x, residual, weight and bias."""
    out: Tensor = _NormAddRelu.apply(x, residual, norm.weight, norm.bias, norm.mean, norm.scale, norm.batch_stats)
    return out


def _run_normalise(x: Tensor, norm: NormState, residual: Tensor | None = None, relu: bool = True) -> Tensor:
    tiling = _tiling(x)
    y = torch.empty_like(x)
    _normalise[tiling.grid](
        x, x if residual is None else residual, y, norm.mean, norm.scale, norm.weight, norm.bias, tiling.rows,
        tiling.width, has_residual=residual is not None, relu=relu, **tiling.tile,
    )  # fmt: skip
    return y


def _norm_gradients(
    grad: Tensor, x: Tensor, norm: NormState, out: Tensor | None = None, relu: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, residual, weight and bias; ``out`` is the output of ``norm_add_relu``, if any."""
    tiling = _tiling(x)
    grad = grad.contiguous(memory_format=torch.channels_last)
    has_residual, positive = out is not None, x if out is None else out
    partial = torch.empty((2, tiling.reduction_grid[0], tiling.width), dtype=torch.float32, device=x.device)
    _partial_grad_sums[tiling.reduction_grid](
        grad, x, positive, norm.mean, norm.scale, norm.weight, norm.bias, partial, tiling.rows, tiling.width,
        has_residual=has_residual, relu=relu, **tiling.tile,
    )  # fmt: skip
    grad_sums = partial.sum(1)
    grad_x = torch.empty_like(x)
    grad_residual = torch.empty_like(x) if has_residual else grad_x
    _input_gradient[tiling.grid](
        grad, x, positive, grad_x, grad_residual, norm.mean, norm.scale, norm.weight, norm.bias, grad_sums, tiling.rows,
        tiling.width, 1 / tiling.rows if norm.batch_stats else 0.0, has_residual=has_residual, relu=relu, **tiling.tile,
    )  # fmt: skip
    grad_bias, grad_weight = grad_sums.to(norm.weight.dtype).unbind()
    return grad_x, grad_residual, grad_weight, grad_bias


def _aten_arguments(geometry: ConvGeometry) -> tuple[Any, ...]:
    """Return the arguments of aten's convolution after its tensors, for a convolution that is not transposed."""
    return (*map(list, geometry[:3]), False, [0, 0], geometry.groups)


def _tiling(x: Tensor) -> RowTiling:
    return row_tiling(x, x.shape[1], MAX_CHANNELS)
