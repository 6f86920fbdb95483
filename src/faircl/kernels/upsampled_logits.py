"""Statistics of bilinearly upsampled logits, pixel by pixel, without the upsampled tensor.

Between four neighbouring logits lies a *cell*; its pixels mix the same four vectors. A program reads the four vectors
once and mixes them in registers, a tile (high, rows, columns, low) at a time; its channels are numbered high by high,
so that lanes of a warp lie along neighbouring channels and columns. ``faircl.kernels.upsample_cells`` tells which
pixels a cell has.

The backward kernel adds up a cell's pixels at each of its four corners and writes the four sums to places of their own;
their sum over the four cells around a logit is its gradient. No two programs write to one place, so results are the
same bit for bit whenever they are computed again.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.bilinear import LN_2, LOG2_E, cell_bounds, corners, group_score, mixed, softplus2, target_score
from faircl.kernels.upsample_cells import axes
from faircl.labels import BACKGROUND, IGNORE

CHANNELS = 32
"""Channels of a tile."""
PIXELS = 32
"""Pixels of a tile, at most: some or all of one cell."""
WARPS = 1
"""Warps of a program: sums over a tile never leave a warp."""
PARTS = 2**26
"""Numbers of the backward pass's sums that exist at a time (256 MiB), or those of one image."""
BLOCK = 1024


@triton.jit
def _scores(
    logits, target, offset, total, own, starts_h, starts_w, weights_h, weights_w, classes, small_h, small_w, large_h,
    large_w, grouped, ignore: tl.constexpr, background: tl.constexpr, has_offset: tl.constexpr,
    has_group: tl.constexpr, sigmoid: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, high: tl.constexpr,
    low: tl.constexpr,
):  # fmt: skip
    """One cell: log Σ exp (or Σ softplus) of its pixels, and the score of their targets."""
    cell_h, cell_w, top, bottom, left, right = cell_bounds(starts_h, starts_w, small_w)
    image = tl.program_id(1).to(tl.int64)
    logits += image * small_h * small_w * classes
    number = tl.arange(0, high)[:, None] * low + tl.arange(0, low)[None, :]
    for x_start in range(left, right, columns):
        x = x_start + tl.arange(0, columns)
        fx = tl.load(weights_w + x, mask=x < right, other=0.0)
        for y_start in range(top, bottom, rows):
            y = y_start + tl.arange(0, rows)
            fy = tl.load(weights_h + y, mask=y < bottom, other=0.0)
            there = (y < bottom)[:, None] & (x < right)[None, :]
            place = image * large_h * large_w + y[:, None] * large_w + x[None, :]
            label = tl.load(target + place, mask=there, other=ignore)
            sum_ = tl.zeros((rows, columns, low), tl.float32)
            if sigmoid:
                for start in range(0, classes, high * low):
                    inside = start + number < classes
                    aa, ab, ba, bb = corners(logits, offset, start + number, inside, cell_h, cell_w, small_h, small_w,
                                              classes, has_offset)  # fmt: skip
                    sum_ += tl.sum(softplus2(mixed(aa, ab, ba, bb, inside, fy, fx)), 0)
                found = tl.sum(sum_, 2) * LN_2
            else:
                highest = tl.full((rows, columns, low), float("-inf"), tl.float32)
                for start in range(0, classes, high * low):
                    inside = start + number < classes
                    aa, ab, ba, bb = corners(logits, offset, start + number, inside, cell_h, cell_w, small_h, small_w,
                                              classes, has_offset)  # fmt: skip
                    highest = tl.maximum(highest, tl.max(mixed(aa, ab, ba, bb, inside, fy, fx), 0))
                top_score = tl.max(highest, 2)
                for start in range(0, classes, high * low):
                    inside = start + number < classes
                    aa, ab, ba, bb = corners(logits, offset, start + number, inside, cell_h, cell_w, small_h, small_w,
                                              classes, has_offset)  # fmt: skip
                    z = mixed(aa, ab, ba, bb, inside, fy, fx)
                    sum_ += tl.sum(tl.exp2(z - top_score[None, :, :, None]), 0)
                found = (top_score + tl.log2(tl.sum(sum_, 2))) * LN_2
            tl.store(total + place, found, mask=there)
            score = target_score(logits, offset, label, classes, cell_h, cell_w, small_h, small_w, fy, fx, has_offset)
            if has_group:
                group = group_score(logits, offset, grouped, number, cell_h, cell_w, small_h, small_w, classes, fy, fx,
                                     has_offset, rows, columns, high, low)  # fmt: skip
                score = tl.where(label == background, group, score)
            tl.store(own + place, tl.where(label == ignore, 0.0, score), mask=there)


@triton.jit
def _argmax(
    logits, best, starts_h, starts_w, weights_h, weights_w, classes, small_h, small_w, large_h, large_w,
    rows: tl.constexpr, columns: tl.constexpr, high: tl.constexpr, low: tl.constexpr,
):  # fmt: skip
    """One cell: the largest channel of its pixels, the first among equals."""
    cell_h, cell_w, top, bottom, left, right = cell_bounds(starts_h, starts_w, small_w)
    image = tl.program_id(1).to(tl.int64)
    logits += image * small_h * small_w * classes
    number = tl.arange(0, high)[:, None] * low + tl.arange(0, low)[None, :]
    for x_start in range(left, right, columns):
        x = x_start + tl.arange(0, columns)
        fx = tl.load(weights_w + x, mask=x < right, other=0.0)
        for y_start in range(top, bottom, rows):
            y = y_start + tl.arange(0, rows)
            fy = tl.load(weights_h + y, mask=y < bottom, other=0.0)
            there = (y < bottom)[:, None] & (x < right)[None, :]
            place = image * large_h * large_w + y[:, None] * large_w + x[None, :]
            highest = tl.full((high, rows, columns, low), float("-inf"), tl.float32)
            winner = tl.zeros((high, rows, columns, low), tl.int32)
            for start in range(0, classes, high * low):
                inside = start + number < classes
                aa, ab, ba, bb = corners(logits, logits, start + number, inside, cell_h, cell_w, small_h, small_w,
                                          classes, False)  # fmt: skip
                z = mixed(aa, ab, ba, bb, inside, fy, fx)
                winner = tl.where(z > highest, (start + number)[:, None, None, :], winner)
                highest = tl.maximum(highest, z)
            top_score = tl.max(tl.max(highest, 0), 2)
            tied = tl.where(highest == top_score[None, :, :, None], winner, classes)
            tl.store(best + place, tl.min(tl.min(tied, 0), 2).to(best.dtype.element_ty), mask=there)


@triton.jit
def _part(
    four, channel, classes, grouped, label, given, given_own, norm, score, fy, fx, background: tl.constexpr,
    has_group: tl.constexpr, sigmoid: tl.constexpr,
):  # fmt: skip
    """Gradient (high, rows, columns, low) of a tile's upsampled logits."""
    aa, ab, ba, bb = four
    z = mixed(aa, ab, ba, bb, channel < classes, fy, fx)
    hit = channel[:, None, None, :] == label[None, :, :, None]
    of_own = tl.where(hit, given_own[None, :, :, None], 0.0)
    if sigmoid:
        share = 1.0 / (1.0 + tl.exp2(-z))
    else:
        share = tl.exp2(z - norm[None, :, :, None])
        if has_group:
            shared = tl.exp2(z - score[None, :, :, None]) * given_own[None, :, :, None]
            shared = tl.where((channel < grouped)[:, None, None, :], shared, 0.0)
            of_own = tl.where((label == background)[None, :, :, None], shared, of_own)
    return given[None, :, :, None] * share + of_own


@triton.jit
def _pixels(target, total, own, grad_total, grad_own, place, there, has_group: tl.constexpr):
    """Return what backward needs of pixels; where there is none, its sum is endless and its share nothing."""
    label = tl.load(target + place, mask=there, other=-1).to(tl.int32)
    given = tl.load(grad_total + place, mask=there, other=0.0)
    given_own = tl.load(grad_own + place, mask=there, other=0.0)
    norm = tl.load(total + place, mask=there, other=float("inf")) * LOG2_E
    score = norm
    if has_group:
        score = tl.load(own + place, mask=there, other=float("inf")) * LOG2_E
    return label, given, given_own, norm, score


@triton.jit
def _backward(
    logits, target, offset, total, own, grad_total, grad_own, parts, starts_h, starts_w, weights_h, weights_w, classes,
    small_h, small_w, large_h, large_w, grouped, background: tl.constexpr, has_offset: tl.constexpr,
    has_group: tl.constexpr, sigmoid: tl.constexpr, whole: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    high: tl.constexpr, low: tl.constexpr,
):  # fmt: skip
    """One cell: the sums of its pixels' gradients at its four corners, parts (4, images, h, w, classes).

    With ``whole`` a tile holds all pixels of a cell: they are read once for all channels.
    """
    cell_h, cell_w, top, bottom, left, right = cell_bounds(starts_h, starts_w, small_w)
    image = tl.program_id(1).to(tl.int64)
    logits += image * small_h * small_w * classes
    first_pixel = image * large_h * large_w
    # The cell lies after, beside or before a logit along each axis; beyond the border there is none, and no weight.
    plane = tl.num_programs(1).to(tl.int64) * small_h * small_w * classes
    parts += ((image * small_h + cell_h) * small_w + cell_w) * classes
    upper, lower = tl.where(cell_h >= 0, classes, 0), tl.where(cell_h < small_h - 1, classes, 0)
    first, last = tl.where(cell_w >= 0, classes, 0), tl.where(cell_w < small_w - 1, classes, 0)
    number = tl.arange(0, high)[:, None] * low + tl.arange(0, low)[None, :]
    if whole:
        x, y = left + tl.arange(0, columns), top + tl.arange(0, rows)
        fx = tl.load(weights_w + x, mask=x < right, other=0.0)
        fy = tl.load(weights_h + y, mask=y < bottom, other=0.0)
        there = (y < bottom)[:, None] & (x < right)[None, :]
        place = first_pixel + y[:, None] * large_w + x[None, :]
        label, given, given_own, norm, score = _pixels(target, total, own, grad_total, grad_own, place, there,
                                                       has_group)  # fmt: skip
    for start in range(0, classes, high * low):
        channel = start + number
        four = corners(logits, offset, channel, channel < classes, cell_h, cell_w, small_h, small_w, classes,
                           has_offset)  # fmt: skip
        if whole:
            part = _part(four, channel, classes, grouped, label, given, given_own, norm, score, fy, fx, background,
                         has_group, sigmoid)  # fmt: skip
            above = tl.sum((1 - fy)[None, :, None, None] * part, 1)
            below = tl.sum(fy[None, :, None, None] * part, 1)
            sum_aa, sum_ab = tl.sum((1 - fx)[None, :, None] * above, 1), tl.sum(fx[None, :, None] * above, 1)
            sum_ba, sum_bb = tl.sum((1 - fx)[None, :, None] * below, 1), tl.sum(fx[None, :, None] * below, 1)
        else:
            sum_aa, sum_ab = tl.zeros((high, low), tl.float32), tl.zeros((high, low), tl.float32)
            sum_ba, sum_bb = tl.zeros((high, low), tl.float32), tl.zeros((high, low), tl.float32)
            for x_start in range(left, right, columns):
                x = x_start + tl.arange(0, columns)
                fx = tl.load(weights_w + x, mask=x < right, other=0.0)
                above = tl.zeros((high, columns, low), tl.float32)
                below = tl.zeros((high, columns, low), tl.float32)
                for y_start in range(top, bottom, rows):
                    y = y_start + tl.arange(0, rows)
                    fy = tl.load(weights_h + y, mask=y < bottom, other=0.0)
                    there = (y < bottom)[:, None] & (x < right)[None, :]
                    place = first_pixel + y[:, None] * large_w + x[None, :]
                    label, given, given_own, norm, score = _pixels(target, total, own, grad_total, grad_own, place,
                                                                   there, has_group)  # fmt: skip
                    part = _part(four, channel, classes, grouped, label, given, given_own, norm, score, fy, fx,
                                 background, has_group, sigmoid)  # fmt: skip
                    above += tl.sum((1 - fy)[None, :, None, None] * part, 1)
                    below += tl.sum(fy[None, :, None, None] * part, 1)
                sum_aa += tl.sum((1 - fx)[None, :, None] * above, 1)
                sum_ab += tl.sum(fx[None, :, None] * above, 1)
                sum_ba += tl.sum((1 - fx)[None, :, None] * below, 1)
                sum_bb += tl.sum(fx[None, :, None] * below, 1)
        at = parts + channel
        tl.store(at, sum_aa, mask=channel < tl.minimum(upper, first))
        tl.store(at + plane + classes, sum_ab, mask=channel < tl.minimum(upper, last))
        tl.store(at + 2 * plane + small_w * classes, sum_ba, mask=channel < tl.minimum(lower, first))
        tl.store(at + 3 * plane + (small_w + 1) * classes, sum_bb, mask=channel < tl.minimum(lower, last))


@triton.jit
def _add_up(parts, out, count, block: tl.constexpr):
    """Add up four parts (4, count) and round once."""
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    there = place < count
    next_ = place + count  # in 64 bits, however many there are
    first = tl.load(parts + place, mask=there) + tl.load(parts + next_, mask=there)
    second = tl.load(parts + next_ + count, mask=there) + tl.load(parts + next_ + count + count, mask=there)
    tl.store(out + place, (first + second).to(out.dtype.element_ty), mask=there)


class _Scores(torch.autograd.Function):
    """Both scores of every pixel, with the gradient of the small logits."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int, sigmoid: bool
    ) -> tuple[Tensor, Tensor]:
        logits, target = _channels_last(logits), target.contiguous()
        total = torch.empty(target.shape, dtype=torch.float32, device=logits.device)
        own = torch.empty_like(total)
        _scores[_grid(logits)](
            logits, target, logits if offset is None else offset, total, own,
            *_shape(logits, target.shape[-2:]), grouped, ignore=IGNORE, background=BACKGROUND,
            has_offset=offset is not None, has_group=grouped > 0, sigmoid=sigmoid, **_tile(logits, target.shape[-2:]),
            num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(logits, target, total, own, *(() if offset is None else (offset,)))
        ctx.grouped, ctx.sigmoid = grouped, sigmoid
        return total, own

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, target, total, own, *rest = ctx.saved_tensors
        classes, small_h, small_w = logits.shape[1:]
        grad = torch.empty_like(logits)
        given = [gradient.float().contiguous() for gradient in gradients]
        images = max(1, PARTS // (4 * classes * small_h * small_w))
        maps = (logits, target, total, own, *given, grad)
        tile = _tile(logits, target.shape[-2:])
        longest = [side.longest for side in axes(logits, target.shape[-2:])]
        whole = longest[0] <= tile["rows"] and longest[1] <= tile["columns"]
        if whole and tile["high"] == 1:
            tile |= {"high": 2, "low": CHANNELS // 2}
        for z, y, sums, scores, given_total, given_own, out in zip(*(m.split(images) for m in maps), strict=True):
            parts = torch.empty((4, z.numel()), dtype=torch.float32, device=z.device)
            _backward[_grid(z)](
                z, y, rest[0] if rest else z, sums, scores, given_total, given_own, parts,
                *_shape(z, y.shape[-2:]), ctx.grouped, background=BACKGROUND, has_offset=bool(rest),
                has_group=ctx.grouped > 0, sigmoid=ctx.sigmoid, **tile, whole=whole, num_warps=WARPS,
            )  # fmt: skip
            _add_up[(triton.cdiv(z.numel(), BLOCK),)](parts, out, z.numel(), block=BLOCK)
        return grad, None, None, None, None


def pixel_scores(
    logits: Tensor, target: Tensor, offset: Tensor | None = None, grouped: int = 0, sigmoid: bool = False
) -> tuple[Tensor, Tensor]:
    r"""Return log Σ_c exp z_{i,c} and s_i of every pixel, z = up(logits) + offset; both (B, H, W) float32.

    s_i = z_{i,y_i}, or log Σ_{c<k} exp z_{i,c} where y_i is background and k = ``grouped`` > 0; zero where y_i is
    IGNORE. With ``sigmoid`` the first is Σ_c log(1 + exp z_{i,c}) instead. Cross-entropy is their difference; whatever
    weighs pixels works on these small tensors. Gradients flow to the logits alone.
    Shapes: logits (B, C, h, w) of any float type and memory format; target (B, H, W) int64; offset (C,).
    """
    deep = None if offset is None else offset.detach().float().contiguous()
    total, own = _Scores.apply(logits, target, deep, grouped, sigmoid)
    return total, own


@torch.no_grad()
def upsampled_argmax(logits: Tensor, size: tuple[int, int] | torch.Size, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return the largest channel of upsampled logits (B, C, h, w) at every pixel: (B, H, W) of a type."""
    logits, size = _channels_last(logits), torch.Size(size)
    best = torch.empty((len(logits), *size), dtype=dtype, device=logits.device)
    _argmax[_grid(logits)](logits, best, *_shape(logits, size), **_tile(logits, size), num_warps=WARPS)
    return best


def _channels_last(logits: Tensor) -> Tensor:
    """Return logits whose channels lie side by side: networks that train fast have them so."""
    return logits.contiguous(memory_format=torch.channels_last) if logits.shape[1] > 1 else logits.contiguous()


def _grid(logits: Tensor) -> tuple[int, int]:
    """One program per cell and image."""
    return (logits.shape[2] + 1) * (logits.shape[3] + 1), len(logits)


def _shape(logits: Tensor, size: torch.Size) -> tuple[Tensor | int, ...]:
    """Return what kernels know of both sizes: first pixels of cells, weights of pixels, classes, heights, widths."""
    classes, small_h, small_w = logits.shape[1:]
    high, wide = axes(logits, size)
    return high.starts, wide.starts, high.weights, wide.weights, classes, small_h, small_w, *size


def _tile(logits: Tensor, size: torch.Size) -> dict[str, int]:
    """Return the shape of a tile: all rows and columns of a cell, where they are few."""
    tall, wide = (triton.next_power_of_2(max(side.longest, 1)) for side in axes(logits, size))
    columns = min(wide, PIXELS)
    # Wide tiles have their columns in the lanes too, narrow ones nothing but channels: measured, not reasoned.
    low = CHANNELS // 4 if columns >= 16 else CHANNELS
    return {"rows": min(tall, PIXELS // columns), "columns": columns, "high": CHANNELS // low, "low": low}
