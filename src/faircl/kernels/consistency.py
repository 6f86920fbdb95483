"""Sum of L_cons over pairs of neighbouring pixels, without storing the softmax.

A first kernel computes lse = log Σ exp z of every pixel; the others compute the softmax y = exp(z − lse) in registers.
For every pair of pixels (i, j) of the window, with d = ‖y_i − y_j‖², the forward kernel stores three numbers: the
coefficient r = ∂loss/∂(d/2), r·y_i·(y_i − y_j) and r·y_j·(y_j − y_i). With them the backward kernel computes the
gradient g of y and of the logits z in one pass over the channels:

    g_i = Σ_j r·(y_i − y_j),   ∂loss/∂z_i = (g_i − g_i·y_i)·y_i,   where g_i·y_i = Σ_j r·y_i·(y_i − y_j).

A program sums the contributions of all pairs of its pixels. No two programs write to the same address, so results are
deterministic.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.bilinear_functions import LOG2_E


class TileSizes(NamedTuple):
    """Numbers of pixels and channels of a tile, and number of warps of a program."""

    tile_p: int
    tile_c: int
    warps: int


FORWARD = TileSizes(tile_p=8, tile_c=16, warps=1)
BACKWARD = TileSizes(tile_p=32, tile_c=16, warps=1)
PAIRS_PER_STEP = tl.constexpr(4)
"""Pairs of a pixel that are computed together; the number of pairs 2·r·(r + 1) of any radius r is a multiple."""

# Names: b image, p pixel, c channel, k one of the three numbers of a pair. num_x is the number of x in total, tile_x
# that of a tile, stride_x the stride of the logits, out_stride_x that of the gradient. ``own`` is the first pixel of a
# pair, ``other`` its neighbour at (dy, dx).


@triton.jit
def _pair_offset(index, radius: tl.constexpr):
    """Return dy and dx of a pair: half of the window, in row-major order from the right neighbour of the pixel."""
    position = index + radius + 1
    side: tl.constexpr = 2 * radius + 1
    return position // side, position % side - radius


@triton.jit
def _softmax(logits, offsets, mask, lse):
    """Return y (pixels, channels), zero where masked."""
    z = tl.load(logits + offsets, mask=mask, other=float("-inf")).to(tl.float32)
    return tl.exp2(z * LOG2_E - lse)


@triton.jit
def _log_sum_exp(logits, lse, num_p, classes, stride_b, stride_c, stride_p, tile_p: tl.constexpr, tile_c: tl.constexpr):
    """Compute log₂ Σ exp z of a tile of pixels of one image."""
    image = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * tile_p + tl.arange(0, tile_p)
    p_mask = pixel < num_p
    logits += image * stride_b
    running_max = tl.full((tile_p,), float("-inf"), tl.float32)
    total = tl.zeros((tile_p,), tl.float32)
    for first in range(0, classes, tile_c):
        channel = first + tl.arange(0, tile_c)
        c_mask = (channel < classes)[None, :]
        offsets = pixel[:, None] * stride_p + channel[None, :] * stride_c
        z = tl.load(logits + offsets, mask=p_mask[:, None] & c_mask, other=0.0).to(tl.float32) * LOG2_E
        z = tl.where(c_mask, z, float("-inf"))
        new_max = tl.maximum(running_max, tl.max(z, 1))
        finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)  # all −∞ so far: −∞ − (−∞) would be NaN
        total = total * tl.exp2(running_max - finite_max) + tl.sum(tl.exp2(z - finite_max[:, None]), 1)
        running_max = new_max
    tl.store(lse + image * num_p + pixel, running_max + tl.log2(total), mask=p_mask)


@triton.jit
def _forward(
    logits, lse, colours, valid, pairs, totals, counts, stride_k, images, height, width, classes, factor_x, factor_y,
    stride_b, stride_c, stride_p, radius: tl.constexpr, smooth: tl.constexpr, num_colours: tl.constexpr,
    tile_p: tl.constexpr, tile_c: tl.constexpr,
):  # fmt: skip
    """Sum the loss over the pairs of a tile of one image, and store the three numbers of each; factors are 1/σ²."""
    image = tl.program_id(1).to(tl.int64)
    num_p = height * width
    pixel = tl.program_id(0) * tile_p + tl.arange(0, tile_p)
    p_mask = pixel < num_p
    row, column = pixel // width, pixel % width
    logits += image * stride_b
    lse += image * num_p
    colours += image * num_colours * num_p
    valid += image * num_p
    own_lse = tl.load(lse + pixel, mask=p_mask, other=0.0)[:, None]
    own_valid = tl.load(valid + pixel, mask=p_mask, other=0)[None, :]
    total = tl.zeros((PAIRS_PER_STEP, tile_p), tl.float32)
    count = tl.zeros((PAIRS_PER_STEP, tile_p), tl.int32)
    for start in range(0, 2 * radius * (radius + 1), PAIRS_PER_STEP):
        index = start + tl.arange(0, PAIRS_PER_STEP)[:, None]
        dy, dx = _pair_offset(index, radius)
        pair_mask = p_mask[None, :] & (row + dy < height) & (column + dx >= 0) & (column + dx < width)
        other = pixel[None, :] + dy * width + dx
        valid_pair = pair_mask & (own_valid != 0) & (tl.load(valid + other, mask=pair_mask, other=0) != 0)
        colour_distance = tl.zeros((PAIRS_PER_STEP, tile_p), tl.float32)
        for colour_index in tl.static_range(num_colours):
            colour = tl.load(colours + colour_index * num_p + pixel, mask=p_mask, other=0.0)[None, :]
            colour -= tl.load(colours + colour_index * num_p + other, mask=valid_pair, other=0.0)
            colour_distance += colour * colour
        other_lse = tl.load(lse + other, mask=valid_pair, other=0.0)[:, :, None]
        squared_gap = tl.zeros((PAIRS_PER_STEP, tile_p, tile_c), tl.float32)
        gap_product = tl.zeros((PAIRS_PER_STEP, tile_p, tile_c), tl.float32)
        for first in range(0, classes, tile_c):
            channel = first + tl.arange(0, tile_c)
            c_mask, c_offsets = (channel < classes)[None, :], channel[None, :] * stride_c
            y = _softmax(logits, pixel[:, None] * stride_p + c_offsets, p_mask[:, None] & c_mask, own_lse)[None, :, :]
            other_offsets = other[:, :, None] * stride_p + c_offsets[None, :, :]
            gap = y - _softmax(logits, other_offsets, valid_pair[:, :, None] & c_mask[None, :, :], other_lse)
            squared_gap += gap * gap
            gap_product += gap * y
        # The logits of pixels without a valid pair may be NaN or infinite.
        distance = tl.where(valid_pair, tl.sum(squared_gap, 2), 0.0)
        own_product = tl.where(valid_pair, tl.sum(gap_product, 2), 0.0)
        colour_similarity = tl.where(valid_pair, tl.exp(-0.5 * factor_x * colour_distance), 0.0)
        similarity = colour_similarity * tl.exp(-0.5 * factor_y * distance)
        coef = similarity * factor_y
        if smooth:
            total += colour_similarity - similarity
        else:
            total += similarity
            coef = -coef
        count += valid_pair.to(tl.int32)
        slot = pairs + (index * images + image) * num_p + pixel[None, :]
        tl.store(slot, coef, mask=p_mask[None, :])
        tl.store(slot + stride_k, coef * own_product, mask=p_mask[None, :])
        # y_j·(y_j − y_i) = ‖y_i − y_j‖² − y_i·(y_i − y_j)
        tl.store(slot + 2 * stride_k, coef * (distance - own_product), mask=p_mask[None, :])
    program = image * tl.num_programs(0) + tl.program_id(0)
    tl.store(totals + program, tl.sum(tl.sum(total, 0), 0))
    tl.store(counts + program, tl.sum(tl.sum(count, 0), 0))


@triton.jit
def _backward(
    logits, lse, pairs, scale, gradient, stride_k, images, height, width, classes, stride_b, stride_c, stride_p,
    out_stride_b, out_stride_c, out_stride_p, radius: tl.constexpr, tile_p: tl.constexpr, tile_c: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the logits of a tile of pixels of one image and of channels."""
    image = tl.program_id(2).to(tl.int64)
    num_p = height * width
    pixel = tl.program_id(0) * tile_p + tl.arange(0, tile_p)
    channel = tl.program_id(1) * tile_c + tl.arange(0, tile_c)
    p_mask, c_mask = pixel < num_p, (channel < classes)[None, :]
    logits += image * stride_b
    lse += image * num_p
    offsets = pixel[:, None] * stride_p + channel[None, :] * stride_c
    mask = p_mask[:, None] & c_mask
    y = _softmax(logits, offsets, mask, tl.load(lse + pixel, mask=p_mask, other=0.0)[:, None])
    grad_y = tl.zeros((tile_p, tile_c), tl.float32)
    gap_product = tl.zeros((tile_p,), tl.float32)
    in_pair = tl.zeros((tile_p,), tl.int1)
    num_offsets = 2 * radius * (radius + 1)
    for direction in range(0, 2 * num_offsets):
        index, reverse = direction // 2, direction % 2
        dy, dx = _pair_offset(index, radius)
        shift = (1 - 2 * reverse) * (dy * width + dx)
        other = pixel + shift
        pair_mask = p_mask & (other >= 0) & (other < num_p)
        # The numbers of a pair are stored at its first pixel; they are zero where the neighbour is outside the row.
        slot = pairs + (index * images + image) * num_p + pixel + reverse * shift
        coef = tl.load(slot, mask=pair_mask, other=0.0)
        gap_product += tl.load(slot + (1 + reverse) * stride_k, mask=pair_mask, other=0.0)
        has_gradient = coef != 0
        in_pair |= has_gradient
        other_lse = tl.load(lse + other, mask=has_gradient, other=0.0)[:, None]
        other_y = _softmax(logits, offsets + shift * stride_p, has_gradient[:, None] & c_mask, other_lse)
        grad_y += tl.where(has_gradient[:, None], coef[:, None] * (y - other_y), 0.0)
    # The logits of pixels without a valid pair may be NaN or infinite.
    result = tl.where(in_pair[:, None], tl.load(scale) * (grad_y - gap_product[:, None]) * y, 0.0)
    out = gradient + image * out_stride_b + pixel[:, None] * out_stride_p + channel[None, :] * out_stride_c
    tl.store(out, result.to(gradient.dtype.element_ty), mask=mask)


class _PairSums(torch.autograd.Function):
    """Sum of the loss over all pairs, and their number; gradients flow to the logits (B, C, s)."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        colours: Tensor,
        valid: Tensor,
        sigma_x: float,
        sigma_y: float,
        radius: int,
        smooth: bool,
    ) -> tuple[Tensor, Tensor]:
        images, classes, num_p = logits.shape
        height, width = valid.shape[1:]
        grid = (triton.cdiv(num_p, FORWARD.tile_p), images)
        lse = logits.new_empty((images, num_p), dtype=torch.float32)
        _log_sum_exp[grid](logits, lse, num_p, classes, *logits.stride(), **_launch_options(FORWARD))
        pairs = lse.new_empty((3, 2 * radius * (radius + 1), images, num_p))
        totals = lse.new_empty(grid)
        counts = lse.new_empty(grid, dtype=torch.int32)
        _forward[grid](
            logits, lse, colours, valid, pairs, totals, counts, pairs.stride(0), images, height, width, classes,
            1 / sigma_x**2, 1 / sigma_y**2, *logits.stride(), radius=radius, smooth=smooth,
            num_colours=colours.shape[1], **_launch_options(FORWARD),
        )  # fmt: skip
        ctx.save_for_backward(logits, lse, pairs)
        ctx.size, ctx.radius = (height, width), radius
        count = counts.sum()
        ctx.mark_non_differentiable(count)
        return totals.sum(), count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        logits, lse, pairs = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        images, classes, num_p = logits.shape
        _backward[(triton.cdiv(num_p, BACKWARD.tile_p), triton.cdiv(classes, BACKWARD.tile_c), images)](
            logits, lse, pairs, scale.float(), gradient, pairs.stride(0), images, *ctx.size, classes, *logits.stride(),
            *gradient.stride(), radius=ctx.radius, **_launch_options(BACKWARD),
        )  # fmt: skip
        return gradient, None, None, None, None, None, None


def _launch_options(sizes: TileSizes) -> dict[str, int]:
    return {"tile_p": sizes.tile_p, "tile_c": sizes.tile_c, "num_warps": sizes.warps}


def pair_sums(
    logits: Tensor,
    x: Tensor,
    valid: Tensor,
    sigma_x: float,
    sigma_y: float,
    radius: int,
    form: Literal["smooth", "literal"],
) -> tuple[Tensor, Tensor]:
    r"""Return the sum of L_cons over all pairs at most ``radius`` rows and columns apart, and their number.

    With y the softmax of the logits, the loss of a pair of valid pixels is

        smooth:   exp(−‖x_i − x_j‖²/2σ_x²) · (1 − exp(−‖y_i − y_j‖²/2σ_y²))
        literal:  exp(−‖x_i − x_j‖²/2σ_x² − ‖y_i − y_j‖²/2σ_y²)

    The sum is float32. Gradients flow to the logits only, in their dtype and memory layout.

    Shapes: logits (B, C, h, w) of at most 32 bits; x (B, 3, h, w); valid (B, h, w) bool.
    """
    flat_logits = logits.flatten(2)
    valid_bytes = valid.contiguous().view(torch.uint8)
    colours = x.detach().float().contiguous()
    total, count = _PairSums.apply(flat_logits, colours, valid_bytes, sigma_x, sigma_y, radius, form == "smooth")
    return total, count
