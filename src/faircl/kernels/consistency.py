"""Sums of L_cons without the softmax of the whole map.

Softmax is y = exp(z − lse), so log Σ exp of every pixel is all that has to be known of it beforehand. Over the pairs of
pixels (i, j) that see each other, with d = ‖y_i − y_j‖², the forward kernel writes three numbers per pair: the rate
r = ∂loss/∂(d/2), and r·y_i·(y_i − y_j) and r·y_j·(y_j − y_i). From these the backward kernel has, without going through
the channels twice, what the softmax needs of the gradient g of y at a pixel:

    g_i = Σ_j r·(y_i − y_j),   g_i·y_i,   and so the gradient of z, (g_i − g_i·y_i)·y_i.

A program gathers what its pixels get from pairs on both sides: no two programs write to one place, and results are the
same bit for bit whenever they are computed again.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.bilinear import LOG2_E


class Sizes(NamedTuple):
    """Pixels of a program, channels that it looks at together, and its warps."""

    pixels: int
    channels: int
    warps: int


FORWARD = Sizes(pixels=8, channels=16, warps=1)
BACKWARD = Sizes(pixels=32, channels=16, warps=1)
TOGETHER = tl.constexpr(4)
"""Pairs of a pixel that are looked at together: a window of any side has a multiple of them."""


@triton.jit
def _offset(index, reach: tl.constexpr):
    """Return dy and dx: half of the window sees every pair once, row by row from the pixel's right neighbour."""
    place = index + reach + 1
    side: tl.constexpr = 2 * reach + 1
    return place // side, place % side - reach


@triton.jit
def _softmax(logits, at, inside, lse):
    """Return y, of pixels by channels, zero beyond the map and beyond the channels."""
    z = tl.load(logits + at, mask=inside, other=float("-inf")).to(tl.float32)
    return tl.exp2(z * LOG2_E - lse)


@triton.jit
def _log_sums(
    logits, lse, pixels_of_image, classes, per_image, per_channel, per_pixel, pixels: tl.constexpr,
    channels: tl.constexpr,
):  # fmt: skip
    """Write log₂ Σ exp z of a tile of one image."""
    image = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * pixels + tl.arange(0, pixels)
    there = pixel < pixels_of_image
    logits += image * per_image
    highest = tl.full((pixels,), float("-inf"), tl.float32)
    total = tl.zeros((pixels,), tl.float32)
    for first in range(0, classes, channels):
        channel = first + tl.arange(0, channels)
        inside = (channel < classes)[None, :]
        at = pixel[:, None] * per_pixel + channel[None, :] * per_channel
        z = tl.load(logits + at, mask=there[:, None] & inside, other=0.0).to(tl.float32) * LOG2_E
        z = tl.where(inside, z, float("-inf"))
        higher = tl.maximum(highest, tl.max(z, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)  # so far nothing but −∞: −∞ − −∞ is no number
        total = total * tl.exp2(highest - finite) + tl.sum(tl.exp2(z - finite[:, None]), 1)
        highest = higher
    tl.store(lse + image * pixels_of_image + pixel, highest + tl.log2(total), mask=there)


@triton.jit
def _forward(
    logits, lse, colours, valid, pairs, totals, counts, step, images, height, width, classes, factor_x, factor_y,
    per_image, per_channel, per_pixel, reach: tl.constexpr, smooth: tl.constexpr, bands: tl.constexpr,
    pixels: tl.constexpr, channels: tl.constexpr,
):  # fmt: skip
    """Sum a tile of one image over its pairs, and write the three numbers of each; factors are 1/σ²."""
    image = tl.program_id(1).to(tl.int64)
    plane = height * width
    pixel = tl.program_id(0) * pixels + tl.arange(0, pixels)
    there = pixel < plane
    row, column = pixel // width, pixel % width
    logits += image * per_image
    lse += image * plane
    colours += image * bands * plane
    valid += image * plane
    here_lse = tl.load(lse + pixel, mask=there, other=0.0)[:, None]
    here_valid = tl.load(valid + pixel, mask=there, other=0)[None, :]
    total = tl.zeros((TOGETHER, pixels), tl.float32)
    count = tl.zeros((TOGETHER, pixels), tl.int32)
    for start in range(0, 2 * reach * (reach + 1), TOGETHER):
        index = start + tl.arange(0, TOGETHER)[:, None]
        dy, dx = _offset(index, reach)
        inside = there[None, :] & (row + dy < height) & (column + dx >= 0) & (column + dx < width)
        other = pixel[None, :] + dy * width + dx
        counted = inside & (here_valid != 0) & (tl.load(valid + other, mask=inside, other=0) != 0)
        unlike = tl.zeros((TOGETHER, pixels), tl.float32)
        for band in tl.static_range(bands):
            colour = tl.load(colours + band * plane + pixel, mask=there, other=0.0)[None, :]
            colour -= tl.load(colours + band * plane + other, mask=counted, other=0.0)
            unlike += colour * colour
        other_lse = tl.load(lse + other, mask=counted, other=0.0)[:, :, None]
        apart = tl.zeros((TOGETHER, pixels, channels), tl.float32)
        along = tl.zeros((TOGETHER, pixels, channels), tl.float32)
        for first in range(0, classes, channels):
            channel = first + tl.arange(0, channels)
            known, across = (channel < classes)[None, :], channel[None, :] * per_channel
            y = _softmax(logits, pixel[:, None] * per_pixel + across, there[:, None] & known, here_lse)[None, :, :]
            met = other[:, :, None] * per_pixel + across[None, :, :]
            gap = y - _softmax(logits, met, counted[:, :, None] & known[None, :, :], other_lse)
            apart += gap * gap
            along += gap * y
        # Of pixels that do not count, logits may be anything.
        squared = tl.where(counted, tl.sum(apart, 2), 0.0)
        own = tl.where(counted, tl.sum(along, 2), 0.0)
        alike = tl.where(counted, tl.exp(-0.5 * factor_x * unlike), 0.0)
        near = alike * tl.exp(-0.5 * factor_y * squared)
        rate = near * factor_y
        if smooth:
            total += alike - near
        else:
            total += near
            rate = -rate
        count += counted.to(tl.int32)
        slot = pairs + (index * images + image) * plane + pixel[None, :]
        tl.store(slot, rate, mask=there[None, :])
        tl.store(slot + step, rate * own, mask=there[None, :])
        # y_j·(y_j − y_i) = ‖y_i − y_j‖² − y_i·(y_i − y_j)
        tl.store(slot + 2 * step, rate * (squared - own), mask=there[None, :])
    program = image * tl.num_programs(0) + tl.program_id(0)
    tl.store(totals + program, tl.sum(tl.sum(total, 0), 0))
    tl.store(counts + program, tl.sum(tl.sum(count, 0), 0))


@triton.jit
def _backward(
    logits, lse, pairs, scale, gradient, step, images, height, width, classes, per_image, per_channel, per_pixel,
    out_per_image, out_per_channel, out_per_pixel, reach: tl.constexpr, pixels: tl.constexpr, channels: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile of one image and some channels."""
    image = tl.program_id(2).to(tl.int64)
    plane = height * width
    pixel = tl.program_id(0) * pixels + tl.arange(0, pixels)
    channel = tl.program_id(1) * channels + tl.arange(0, channels)
    there, known = pixel < plane, (channel < classes)[None, :]
    logits += image * per_image
    lse += image * plane
    at = pixel[:, None] * per_pixel + channel[None, :] * per_channel
    within = there[:, None] & known
    y = _softmax(logits, at, within, tl.load(lse + pixel, mask=there, other=0.0)[:, None])
    of_y = tl.zeros((pixels, channels), tl.float32)
    along = tl.zeros((pixels,), tl.float32)
    counted = tl.zeros((pixels,), tl.int1)
    offsets = 2 * reach * (reach + 1)
    for turn in range(0, 2 * offsets):
        index, back = turn // 2, turn % 2
        dy, dx = _offset(index, reach)
        shift = (1 - 2 * back) * (dy * width + dx)
        other = pixel + shift
        inside = there & (other >= 0) & (other < plane)
        # A pair's numbers are kept at its first pixel; they are zero where it leaves the image sideways.
        slot = pairs + (index * images + image) * plane + pixel + back * shift
        rate = tl.load(slot, mask=inside, other=0.0)
        along += tl.load(slot + (1 + back) * step, mask=inside, other=0.0)
        pair = rate != 0
        counted |= pair
        other_lse = tl.load(lse + other, mask=pair, other=0.0)[:, None]
        met = _softmax(logits, at + shift * per_pixel, pair[:, None] & known, other_lse)
        of_y += tl.where(pair[:, None], rate[:, None] * (y - met), 0.0)
    # Of pixels that do not count, logits may be anything.
    result = tl.where(counted[:, None], tl.load(scale) * (of_y - along[:, None]) * y, 0.0)
    place = gradient + image * out_per_image + pixel[:, None] * out_per_pixel + channel[None, :] * out_per_channel
    tl.store(place, result.to(gradient.dtype.element_ty), mask=within)


class _Sums(torch.autograd.Function):
    """Sum over all pairs and their number, with the gradient of the logits (B, C, s)."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        colours: Tensor,
        valid: Tensor,
        sigma_x: float,
        sigma_y: float,
        reach: int,
        smooth: bool,
    ) -> tuple[Tensor, Tensor]:
        images, classes, pixels = logits.shape
        height, width = valid.shape[1:]
        grid = (triton.cdiv(pixels, FORWARD.pixels), images)
        lse = logits.new_empty((images, pixels), dtype=torch.float32)
        _log_sums[grid](logits, lse, pixels, classes, *logits.stride(), **_as_given(FORWARD))
        pairs = lse.new_empty((3, 2 * reach * (reach + 1), images, pixels))
        totals = lse.new_empty(grid)
        counts = lse.new_empty(grid, dtype=torch.int32)
        _forward[grid](
            logits, lse, colours, valid, pairs, totals, counts, pairs.stride(0), images, height, width, classes,
            1 / sigma_x**2, 1 / sigma_y**2, *logits.stride(), reach=reach, smooth=smooth, bands=colours.shape[1],
            **_as_given(FORWARD),
        )  # fmt: skip
        ctx.save_for_backward(logits, lse, pairs)
        ctx.size, ctx.reach = (height, width), reach
        count = counts.sum()
        ctx.mark_non_differentiable(count)
        return totals.sum(), count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        logits, lse, pairs = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        images, classes, pixels = logits.shape
        _backward[(triton.cdiv(pixels, BACKWARD.pixels), triton.cdiv(classes, BACKWARD.channels), images)](
            logits, lse, pairs, scale.float(), gradient, pairs.stride(0), images, *ctx.size, classes,
            *logits.stride(), *gradient.stride(), reach=ctx.reach, **_as_given(BACKWARD),
        )  # fmt: skip
        return gradient, None, None, None, None, None, None


def _as_given(sizes: Sizes) -> dict[str, int]:
    return {"pixels": sizes.pixels, "channels": sizes.channels, "num_warps": sizes.warps}


def pair_sums(
    logits: Tensor,
    x: Tensor,
    valid: Tensor,
    sigma_x: float,
    sigma_y: float,
    reach: int,
    form: Literal["smooth", "literal"],
) -> tuple[Tensor, Tensor]:
    r"""Return the sum of L_cons over all pairs at most ``reach`` rows and columns apart, and their number.

    With y the softmax of the logits, a pair of valid pixels counts

        smooth:   exp(−‖x_i − x_j‖²/2σ_x²) · (1 − exp(−‖y_i − y_j‖²/2σ_y²))
        literal:  exp(−‖x_i − x_j‖²/2σ_x² − ‖y_i − y_j‖²/2σ_y²)

    The sum is float32. Gradients flow to the logits alone, in their type and memory layout.
    Shapes: logits (B, C, h, w) of at most 32 bits; x (B, 3, h, w); valid (B, h, w) bool.
    """
    flat = logits.flatten(2)
    seen = valid.contiguous().view(torch.uint8)
    colours = x.detach().float().contiguous()
    total, count = _Sums.apply(flat, colours, seen, sigma_x, sigma_y, reach, form == "smooth")
    return total, count
