"""Statistics of bilinearly upsampled logits, pixel by pixel, without the upsampled tensor.

Between four neighbouring logits lies a *cell*; its pixels mix the same four vectors. With centres half a pixel inside
the border (``align_corners=False``), pixel i of H lies in cell c of h where

    c ≤ (2i + 1)·h / 2H − ½ < c + 1,   c = −1 … h − 1,

and mixes rows max(c, 0) and min(c + 1, h − 1) by 1 − f and f, f the distance from c. All of it is integer arithmetic,
so pixels are told apart exactly. A program reads the four vectors of a cell once and mixes them in registers.

The backward kernel has a program per logit, which adds up the pixels of the four cells around it in a fixed order: no
two programs write to one place, and results are the same bit for bit whenever they are computed again.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from faircl.data.sample import BACKGROUND, IGNORE

PIXELS = 64
"""Most pixels of a cell that are mixed at a time."""
CHANNELS = 64
"""Channels that are mixed at a time."""


@triton.jit
def _first(cell, small, large):
    """Smallest pixel of a cell or of one after it: ⌈(large·(2·cell + 1) − small) / (2·small)⌉, within the image."""
    numerator = large * (2 * cell + 1) - small
    start = (numerator + 2 * small - 1) // (2 * small)
    start = tl.where(numerator > 0, start, 0)
    return tl.where(cell >= small, large, tl.minimum(start, large))


@triton.jit
def _fraction(pixel, cell, small, large):
    """Distance of a pixel from the start of its cell, in cells."""
    return ((2 * pixel + 1) * small - large - 2 * large * cell).to(tl.float32) / (2 * large)


@triton.jit
def _corner(logits, offset, channel, inside, row, column, small_w, plane, has_offset: tl.constexpr):
    """Logits (channels,) at one place, in float32."""
    values = tl.load(logits + channel * plane + row * small_w + column, mask=inside, other=0.0).to(tl.float32)
    if has_offset:
        values += tl.load(offset + channel, mask=inside, other=0.0)
    return values


@triton.jit
def _forward(
    logits,
    target,
    offset,
    lse,
    own,
    best,
    classes,
    small_h,
    small_w,
    large_h,
    large_w,
    grouped,
    ignore: tl.constexpr,
    background: tl.constexpr,
    has_offset: tl.constexpr,
    has_target: tl.constexpr,
    pixels: tl.constexpr,
    channels: tl.constexpr,
):
    """One cell: log Σ exp and the target's score of its pixels, or their largest channel."""
    cell_w, cell_h = tl.program_id(0) - 1, tl.program_id(1) - 1
    image = tl.program_id(2).to(tl.int64)
    top, bottom = _first(cell_h, small_h, large_h), _first(cell_h + 1, small_h, large_h)
    left, right = _first(cell_w, small_w, large_w), _first(cell_w + 1, small_w, large_w)
    rows, columns = bottom - top, right - left
    plane = small_h * small_w
    logits += image * classes * plane
    row_a, row_b = tl.maximum(cell_h, 0), tl.minimum(cell_h + 1, small_h - 1)
    column_a, column_b = tl.maximum(cell_w, 0), tl.minimum(cell_w + 1, small_w - 1)
    for start in range(0, rows * columns, pixels):
        flat = start + tl.arange(0, pixels)
        there = flat < rows * columns
        y, x = top + flat // tl.maximum(columns, 1), left + flat % tl.maximum(columns, 1)
        place = image * large_h * large_w + y * large_w + x
        fy, fx = _fraction(y, cell_h, small_h, large_h), _fraction(x, cell_w, small_w, large_w)
        if has_target:
            label = tl.load(target + place, mask=there, other=ignore)
        top_score = tl.full((pixels,), float("-inf"), tl.float32)
        total = tl.zeros((pixels,), tl.float32)
        group_top = tl.full((pixels,), float("-inf"), tl.float32)
        group_total = tl.zeros((pixels,), tl.float32)
        score = tl.zeros((pixels,), tl.float32)
        winner = tl.zeros((pixels,), tl.int32)
        for first in range(0, classes, channels):
            channel = first + tl.arange(0, channels)
            inside = channel < classes
            aa = _corner(logits, offset, channel, inside, row_a, column_a, small_w, plane, has_offset)
            ab = _corner(logits, offset, channel, inside, row_a, column_b, small_w, plane, has_offset)
            ba = _corner(logits, offset, channel, inside, row_b, column_a, small_w, plane, has_offset)
            bb = _corner(logits, offset, channel, inside, row_b, column_b, small_w, plane, has_offset)
            upper = aa[None, :] + fx[:, None] * (ab - aa)[None, :]
            lower = ba[None, :] + fx[:, None] * (bb - ba)[None, :]
            z = upper + fy[:, None] * (lower - upper)
            z = tl.where(inside[None, :], z, float("-inf"))
            if has_target:
                higher = tl.maximum(top_score, tl.max(z, 1))
                total = total * tl.exp(top_score - higher) + tl.sum(tl.exp(z - higher[:, None]), 1)
                top_score = higher
                score += tl.sum(tl.where(channel[None, :] == label[:, None], z, 0.0), 1)
                if grouped > first:
                    member = tl.where((channel < grouped)[None, :], z, float("-inf"))
                    higher = tl.maximum(group_top, tl.max(member, 1))
                    group_total = group_total * tl.exp(group_top - higher)
                    group_total += tl.sum(tl.exp(member - higher[:, None]), 1)
                    group_top = higher
            else:
                here = tl.max(z, 1)
                # Among equals the first channel wins, as in torch.
                index = first + tl.argmax(z, 1, tie_break_left=True).to(tl.int32)
                winner = tl.where(here > top_score, index, winner)
                top_score = tl.maximum(top_score, here)
        if has_target:
            if grouped > 0:
                score = tl.where(label == background, group_top + tl.log(group_total), score)
            tl.store(lse + place, top_score + tl.log(total), mask=there)
            tl.store(own + place, tl.where(label == ignore, 0.0, score), mask=there)
        else:
            tl.store(best + place, winner, mask=there)


@triton.jit
def _backward(
    logits,
    target,
    offset,
    lse,
    own,
    grad_lse,
    grad_own,
    grad,
    classes,
    small_h,
    small_w,
    large_h,
    large_w,
    grouped,
    background: tl.constexpr,
    has_offset: tl.constexpr,
    pixels: tl.constexpr,
    channels: tl.constexpr,
):
    """One place of the logits and some channels: the gradient from the pixels of the four cells around it."""
    row, column = tl.program_id(0) // small_w, tl.program_id(0) % small_w
    image = tl.program_id(2).to(tl.int64)
    channel = tl.program_id(1) * channels + tl.arange(0, channels)
    inside = channel < classes
    plane = small_h * small_w
    logits += image * classes * plane
    sum_ = tl.zeros((channels,), tl.float32)
    for corner in range(4):
        cell_h, cell_w = row - 1 + corner // 2, column - 1 + corner % 2
        top, bottom = _first(cell_h, small_h, large_h), _first(cell_h + 1, small_h, large_h)
        left, right = _first(cell_w, small_w, large_w), _first(cell_w + 1, small_w, large_w)
        rows, columns = bottom - top, right - left
        row_a, row_b = tl.maximum(cell_h, 0), tl.minimum(cell_h + 1, small_h - 1)
        column_a, column_b = tl.maximum(cell_w, 0), tl.minimum(cell_w + 1, small_w - 1)
        aa = _corner(logits, offset, channel, inside, row_a, column_a, small_w, plane, has_offset)
        ab = _corner(logits, offset, channel, inside, row_a, column_b, small_w, plane, has_offset)
        ba = _corner(logits, offset, channel, inside, row_b, column_a, small_w, plane, has_offset)
        bb = _corner(logits, offset, channel, inside, row_b, column_b, small_w, plane, has_offset)
        for start in range(0, rows * columns, pixels):
            flat = start + tl.arange(0, pixels)
            there = flat < rows * columns
            y, x = top + flat // tl.maximum(columns, 1), left + flat % tl.maximum(columns, 1)
            place = image * large_h * large_w + y * large_w + x
            fy, fx = _fraction(y, cell_h, small_h, large_h), _fraction(x, cell_w, small_w, large_w)
            weight_y = tl.where(row_a == row, 1 - fy, 0.0) + tl.where(row_b == row, fy, 0.0)
            weight_x = tl.where(column_a == column, 1 - fx, 0.0) + tl.where(column_b == column, fx, 0.0)
            label = tl.load(target + place, mask=there, other=0)
            given = tl.load(grad_lse + place, mask=there, other=0.0)
            given_own = tl.load(grad_own + place, mask=there, other=0.0)
            norm = tl.load(lse + place, mask=there, other=0.0)
            upper = aa[None, :] + fx[:, None] * (ab - aa)[None, :]
            lower = ba[None, :] + fx[:, None] * (bb - ba)[None, :]
            z = upper + fy[:, None] * (lower - upper)
            part = given[:, None] * tl.exp(z - norm[:, None])
            hit = (channel[None, :] == label[:, None]).to(tl.float32)
            if grouped > 0:
                score = tl.load(own + place, mask=there, other=0.0)
                shared = tl.where((channel < grouped)[None, :], tl.exp(z - score[:, None]), 0.0)
                hit = tl.where((label == background)[:, None], shared, hit)
            part += given_own[:, None] * hit
            weight = tl.where(there, weight_y * weight_x, 0.0)
            sum_ += tl.sum(weight[:, None] * part, 0)
    out = grad + image * classes * plane + channel * plane + row * small_w + column
    tl.store(out, sum_.to(grad.dtype.element_ty), mask=inside)


class _Scores(torch.autograd.Function):
    """Log-sum-exp and target score of every pixel, with the gradient of the small logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int) -> tuple[Tensor, Tensor]:
        logits = logits.contiguous()
        lse = torch.empty(target.shape, dtype=torch.float32, device=logits.device)
        own = torch.empty_like(lse)
        _launch_forward(logits, target.contiguous(), offset, lse, own, None, grouped, target.shape[-2:])
        ctx.save_for_backward(logits, target, lse, own, *(() if offset is None else (offset,)))
        ctx.grouped = grouped
        return lse, own

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        logits, target, lse, own, *rest = ctx.saved_tensors
        grad = torch.empty_like(logits)
        images, classes, small_h, small_w = logits.shape
        large_h, large_w = target.shape[-2:]
        pixels = _pixels_of(small_h, small_w, large_h, large_w)
        _backward[(small_h * small_w, triton.cdiv(classes, CHANNELS), images)](
            logits,
            target.contiguous(),
            rest[0] if rest else logits,
            lse,
            own,
            *(gradient.float().contiguous() for gradient in gradients),
            grad,
            classes,
            small_h,
            small_w,
            large_h,
            large_w,
            ctx.grouped,
            background=BACKGROUND,
            has_offset=bool(rest),
            pixels=pixels,
            channels=CHANNELS,
        )
        return grad, None, None, None


def pixel_scores(
    logits: Tensor, target: Tensor, offset: Tensor | None = None, grouped: int = 0
) -> tuple[Tensor, Tensor]:
    r"""Return log Σ_c exp z_{i,c} and s_i of every pixel, z = up(logits) + offset; both (B, H, W) float32.

    s_i = z_{i,y_i}, or log Σ_{c<k} exp z_{i,c} where y_i is background and k = ``grouped`` > 0; zero where y_i is
    IGNORE. Cross-entropy is their difference; whatever weighs pixels works on these small tensors. Gradients flow to
    the logits alone. Shapes: logits (B, C, h, w) of any float type; target (B, H, W) int64; offset (C,).
    """
    deep = None if offset is None else offset.detach().float().contiguous()
    lse, own = _Scores.apply(logits, target, deep, grouped)
    return lse, own


@torch.no_grad()
def upsampled_argmax(logits: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Return the largest channel of upsampled logits (B, C, h, w) at every pixel: (B, H, W) int64."""
    best = torch.empty((len(logits), *size), dtype=torch.int32, device=logits.device)
    _launch_forward(logits.contiguous(), None, None, None, None, best, 0, torch.Size(size))
    return best.long()


def _launch_forward(
    logits: Tensor,
    target: Tensor | None,
    offset: Tensor | None,
    lse: Tensor | None,
    own: Tensor | None,
    best: Tensor | None,
    grouped: int,
    size: torch.Size,
) -> None:
    images, classes, small_h, small_w = logits.shape
    unused = logits  # some pointer must be given; the kernel never follows it
    _forward[(small_w + 1, small_h + 1, images)](
        logits,
        *(unused if value is None else value for value in (target, offset, lse, own, best)),
        classes,
        small_h,
        small_w,
        *size,
        grouped,
        ignore=IGNORE,
        background=BACKGROUND,
        has_offset=offset is not None,
        has_target=target is not None,
        pixels=_pixels_of(small_h, small_w, *size),
        channels=CHANNELS,
    )


def _pixels_of(small_h: int, small_w: int, large_h: int, large_w: int) -> int:
    """Pixels of a cell that are mixed at a time: all, where they are few."""
    whole = -(-large_h // small_h) * -(-large_w // small_w)
    return max(min(1 << (whole - 1).bit_length(), PIXELS), 4)
