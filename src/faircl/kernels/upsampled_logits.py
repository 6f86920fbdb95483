"""Cross-entropy terms and argmax of bilinearly upsampled logits, without storing the upsampled logits.

Four neighbouring logit vectors bound a *cell* of output pixels, which interpolate these four vectors. A program loads
the four vectors of a cell once and interpolates tiles (c_outer, tile_h, tile_w, c_inner) of its pixels in registers.
The channel of a tile element is first + i_outer·c_inner + i_inner, so that the lanes of a warp lie along neighbouring
channels and columns. ``faircl.kernels.bilinear_tables`` has the pixels of every cell.

The backward kernel sums the gradients of the pixels of a cell for each of its four corners and stores the four sums
separately; the gradient of a logit is the sum over the four cells around it. No two programs write to the same address,
so results are deterministic.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.bilinear_functions import (
    LN_2,
    LOG2_E,
    cell_bounds,
    group_score,
    interpolate,
    load_corners,
    softplus2,
    target_score,
)
from faircl.kernels.bilinear_tables import TILE_CHANNELS, axis_tables, cell_grid, cell_tile, kernel_arguments
from faircl.labels import BACKGROUND, IGNORE

NUM_WARPS = 1
"""Warps per program: with one, sums over a tile need no communication between warps."""
MAX_CORNER_SUMS = 2**26
"""Largest number of corner sums of the backward pass at a time (256 MiB), unless one image has more."""
BLOCK = 1024
"""Logits per program of the sum over corners."""

# Names: z00, z01, z10, z11 are the corners of a cell (row, column); fy, fx the weights of its lower row and right
# column; in_h, in_w the size of the logits, out_h, out_w that of the target. ``norm`` is log Σ exp z of a pixel
# (or Σ softplus z), ``score`` that of its target; g_norm and g_score are their gradients. ``pixel`` is the offset
# of output pixels. Logits are in channels_last and multiplied by log2 e in registers, for exp2 and log2.


@triton.jit
def _scores(
    logits, target, offset, norm, score, starts_h, starts_w, weights_h, weights_w, classes, in_h, in_w, out_h, out_w,
    grouped, ignore: tl.constexpr, background: tl.constexpr, has_offset: tl.constexpr, has_group: tl.constexpr,
    sigmoid: tl.constexpr, tile_h: tl.constexpr, tile_w: tl.constexpr, c_outer: tl.constexpr, c_inner: tl.constexpr,
):  # fmt: skip
    """Compute log Σ exp (or Σ softplus) of the pixels of one cell, and the score of their targets."""
    cell_h, cell_w, top, bottom, left, right = cell_bounds(starts_h, starts_w, in_w)
    image = tl.program_id(1).to(tl.int64)
    logits += image * in_h * in_w * classes
    c_index = tl.arange(0, c_outer)[:, None] * c_inner + tl.arange(0, c_inner)[None, :]
    for x_start in range(left, right, tile_w):
        x = x_start + tl.arange(0, tile_w)
        fx = tl.load(weights_w + x, mask=x < right, other=0.0)
        for y_start in range(top, bottom, tile_h):
            y = y_start + tl.arange(0, tile_h)
            fy = tl.load(weights_h + y, mask=y < bottom, other=0.0)
            mask = (y < bottom)[:, None] & (x < right)[None, :]
            pixel = image * out_h * out_w + y[:, None] * out_w + x[None, :]
            label = tl.load(target + pixel, mask=mask, other=ignore)
            exp_sum = tl.zeros((tile_h, tile_w, c_inner), tl.float32)
            if sigmoid:
                for start in range(0, classes, c_outer * c_inner):
                    c_mask = start + c_index < classes
                    z00, z01, z10, z11 = load_corners(
                        logits, offset, start + c_index, c_mask, cell_h, cell_w, in_h, in_w, classes, has_offset,
                    )  # fmt: skip
                    exp_sum += tl.sum(softplus2(interpolate(z00, z01, z10, z11, c_mask, fy, fx)), 0)
                result = tl.sum(exp_sum, 2) * LN_2
            else:
                running_max = tl.full((tile_h, tile_w, c_inner), float("-inf"), tl.float32)
                for start in range(0, classes, c_outer * c_inner):
                    c_mask = start + c_index < classes
                    z00, z01, z10, z11 = load_corners(
                        logits, offset, start + c_index, c_mask, cell_h, cell_w, in_h, in_w, classes, has_offset,
                    )  # fmt: skip
                    running_max = tl.maximum(running_max, tl.max(interpolate(z00, z01, z10, z11, c_mask, fy, fx), 0))
                max_score = tl.max(running_max, 2)
                for start in range(0, classes, c_outer * c_inner):
                    c_mask = start + c_index < classes
                    z00, z01, z10, z11 = load_corners(
                        logits, offset, start + c_index, c_mask, cell_h, cell_w, in_h, in_w, classes, has_offset,
                    )  # fmt: skip
                    z = interpolate(z00, z01, z10, z11, c_mask, fy, fx)
                    exp_sum += tl.sum(tl.exp2(z - max_score[None, :, :, None]), 0)
                result = (max_score + tl.log2(tl.sum(exp_sum, 2))) * LN_2
            tl.store(norm + pixel, result, mask=mask)
            target_logit = target_score(logits, offset, label, classes, cell_h, cell_w, in_h, in_w, fy, fx, has_offset)
            if has_group:
                group_logit = group_score(
                    logits, offset, grouped, c_index, cell_h, cell_w, in_h, in_w, classes, fy, fx, has_offset, tile_h,
                    tile_w, c_outer, c_inner,
                )  # fmt: skip
                target_logit = tl.where(label == background, group_logit, target_logit)
            tl.store(score + pixel, tl.where(label == ignore, 0.0, target_logit), mask=mask)


@triton.jit
def _argmax(
    logits, best, starts_h, starts_w, weights_h, weights_w, classes, in_h, in_w, out_h, out_w, tile_h: tl.constexpr,
    tile_w: tl.constexpr, c_outer: tl.constexpr, c_inner: tl.constexpr,
):  # fmt: skip
    """Compute the largest channel of the pixels of one cell, the first of equal ones."""
    cell_h, cell_w, top, bottom, left, right = cell_bounds(starts_h, starts_w, in_w)
    image = tl.program_id(1).to(tl.int64)
    logits += image * in_h * in_w * classes
    c_index = tl.arange(0, c_outer)[:, None] * c_inner + tl.arange(0, c_inner)[None, :]
    for x_start in range(left, right, tile_w):
        x = x_start + tl.arange(0, tile_w)
        fx = tl.load(weights_w + x, mask=x < right, other=0.0)
        for y_start in range(top, bottom, tile_h):
            y = y_start + tl.arange(0, tile_h)
            fy = tl.load(weights_h + y, mask=y < bottom, other=0.0)
            mask = (y < bottom)[:, None] & (x < right)[None, :]
            pixel = image * out_h * out_w + y[:, None] * out_w + x[None, :]
            running_max = tl.full((c_outer, tile_h, tile_w, c_inner), float("-inf"), tl.float32)
            best_channel = tl.zeros((c_outer, tile_h, tile_w, c_inner), tl.int32)
            for start in range(0, classes, c_outer * c_inner):
                c_mask = start + c_index < classes
                z00, z01, z10, z11 = load_corners(
                    logits, logits, start + c_index, c_mask, cell_h, cell_w, in_h, in_w, classes, False,
                )  # fmt: skip
                z = interpolate(z00, z01, z10, z11, c_mask, fy, fx)
                best_channel = tl.where(z > running_max, (start + c_index)[:, None, None, :], best_channel)
                running_max = tl.maximum(running_max, z)
            max_score = tl.max(tl.max(running_max, 0), 2)
            candidates = tl.where(running_max == max_score[None, :, :, None], best_channel, classes)
            tl.store(best + pixel, tl.min(tl.min(candidates, 0), 2).to(best.dtype.element_ty), mask=mask)


@triton.jit
def _tile_gradient(
    corners, channel, classes, grouped, label, g_norm, g_score, log2_norm, log2_score, fy, fx, background: tl.constexpr,
    has_group: tl.constexpr, sigmoid: tl.constexpr,
):  # fmt: skip
    """Return the gradient of the upsampled logits of a tile, (c_outer, tile_h, tile_w, c_inner)."""
    z00, z01, z10, z11 = corners
    z = interpolate(z00, z01, z10, z11, channel < classes, fy, fx)
    is_target = channel[:, None, None, :] == label[None, :, :, None]
    from_score = tl.where(is_target, g_score[None, :, :, None], 0.0)
    if sigmoid:
        probability = 1.0 / (1.0 + tl.exp2(-z))
    else:
        probability = tl.exp2(z - log2_norm[None, :, :, None])
        if has_group:
            from_group = tl.exp2(z - log2_score[None, :, :, None]) * g_score[None, :, :, None]
            from_group = tl.where((channel < grouped)[:, None, None, :], from_group, 0.0)
            from_score = tl.where((label == background)[None, :, :, None], from_group, from_score)
    return g_norm[None, :, :, None] * probability + from_score


@triton.jit
def _load_pixels(target, norm, score, grad_norm, grad_score, pixel, mask, has_group: tl.constexpr):
    """Load labels, gradients and scores of pixels; masked pixels get a ``norm`` of ∞, and so a softmax of 0."""
    label = tl.load(target + pixel, mask=mask, other=-1).to(tl.int32)
    g_norm = tl.load(grad_norm + pixel, mask=mask, other=0.0)
    g_score = tl.load(grad_score + pixel, mask=mask, other=0.0)
    log2_norm = tl.load(norm + pixel, mask=mask, other=float("inf")) * LOG2_E
    log2_score = log2_norm
    if has_group:
        log2_score = tl.load(score + pixel, mask=mask, other=float("inf")) * LOG2_E
    return label, g_norm, g_score, log2_norm, log2_score


@triton.jit
def _backward(
    logits, target, offset, norm, score, grad_norm, grad_score, corner_sums, starts_h, starts_w, weights_h, weights_w,
    classes, in_h, in_w, out_h, out_w, grouped, background: tl.constexpr, has_offset: tl.constexpr,
    has_group: tl.constexpr, sigmoid: tl.constexpr, whole_cell: tl.constexpr, tile_h: tl.constexpr,
    tile_w: tl.constexpr, c_outer: tl.constexpr, c_inner: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of the pixels of one cell for its four corners: corner_sums (4, images, h, w, classes).

    With ``whole_cell`` a tile holds all pixels of a cell, and they are loaded once for all channels.
    """
    cell_h, cell_w, top, bottom, left, right = cell_bounds(starts_h, starts_w, in_w)
    image = tl.program_id(1).to(tl.int64)
    logits += image * in_h * in_w * classes
    first_pixel = image * out_h * out_w
    # Cells at the border have corners outside the map; nothing is stored for these.
    corner_stride = tl.num_programs(1).to(tl.int64) * in_h * in_w * classes
    corner_sums += ((image * in_h + cell_h) * in_w + cell_w) * classes
    upper_c, lower_c = tl.where(cell_h >= 0, classes, 0), tl.where(cell_h < in_h - 1, classes, 0)
    left_c, right_c = tl.where(cell_w >= 0, classes, 0), tl.where(cell_w < in_w - 1, classes, 0)
    c_index = tl.arange(0, c_outer)[:, None] * c_inner + tl.arange(0, c_inner)[None, :]
    if whole_cell:
        x, y = left + tl.arange(0, tile_w), top + tl.arange(0, tile_h)
        fx = tl.load(weights_w + x, mask=x < right, other=0.0)
        fy = tl.load(weights_h + y, mask=y < bottom, other=0.0)
        mask = (y < bottom)[:, None] & (x < right)[None, :]
        pixel = first_pixel + y[:, None] * out_w + x[None, :]
        label, g_norm, g_score, log2_norm, log2_score = _load_pixels(
            target, norm, score, grad_norm, grad_score, pixel, mask, has_group,
        )  # fmt: skip
    for start in range(0, classes, c_outer * c_inner):
        channel = start + c_index
        corners = load_corners(
            logits, offset, channel, channel < classes, cell_h, cell_w, in_h, in_w, classes, has_offset,
        )  # fmt: skip
        if whole_cell:
            gradient = _tile_gradient(
                corners, channel, classes, grouped, label, g_norm, g_score, log2_norm, log2_score, fy, fx, background,
                has_group, sigmoid,
            )  # fmt: skip
            upper_sum = tl.sum((1 - fy)[None, :, None, None] * gradient, 1)
            lower_sum = tl.sum(fy[None, :, None, None] * gradient, 1)
            sum_00, sum_01 = tl.sum((1 - fx)[None, :, None] * upper_sum, 1), tl.sum(fx[None, :, None] * upper_sum, 1)
            sum_10, sum_11 = tl.sum((1 - fx)[None, :, None] * lower_sum, 1), tl.sum(fx[None, :, None] * lower_sum, 1)
        else:
            sum_00, sum_01 = tl.zeros((c_outer, c_inner), tl.float32), tl.zeros((c_outer, c_inner), tl.float32)
            sum_10, sum_11 = tl.zeros((c_outer, c_inner), tl.float32), tl.zeros((c_outer, c_inner), tl.float32)
            for x_start in range(left, right, tile_w):
                x = x_start + tl.arange(0, tile_w)
                fx = tl.load(weights_w + x, mask=x < right, other=0.0)
                upper_sum = tl.zeros((c_outer, tile_w, c_inner), tl.float32)
                lower_sum = tl.zeros((c_outer, tile_w, c_inner), tl.float32)
                for y_start in range(top, bottom, tile_h):
                    y = y_start + tl.arange(0, tile_h)
                    fy = tl.load(weights_h + y, mask=y < bottom, other=0.0)
                    mask = (y < bottom)[:, None] & (x < right)[None, :]
                    pixel = first_pixel + y[:, None] * out_w + x[None, :]
                    label, g_norm, g_score, log2_norm, log2_score = _load_pixels(
                        target, norm, score, grad_norm, grad_score, pixel, mask, has_group,
                    )  # fmt: skip
                    gradient = _tile_gradient(
                        corners, channel, classes, grouped, label, g_norm, g_score, log2_norm, log2_score, fy, fx,
                        background, has_group, sigmoid,
                    )  # fmt: skip
                    upper_sum += tl.sum((1 - fy)[None, :, None, None] * gradient, 1)
                    lower_sum += tl.sum(fy[None, :, None, None] * gradient, 1)
                sum_00 += tl.sum((1 - fx)[None, :, None] * upper_sum, 1)
                sum_01 += tl.sum(fx[None, :, None] * upper_sum, 1)
                sum_10 += tl.sum((1 - fx)[None, :, None] * lower_sum, 1)
                sum_11 += tl.sum(fx[None, :, None] * lower_sum, 1)
        base = corner_sums + channel
        tl.store(base, sum_00, mask=channel < tl.minimum(upper_c, left_c))
        tl.store(base + corner_stride + classes, sum_01, mask=channel < tl.minimum(upper_c, right_c))
        tl.store(base + 2 * corner_stride + in_w * classes, sum_10, mask=channel < tl.minimum(lower_c, left_c))
        tl.store(base + 3 * corner_stride + (in_w + 1) * classes, sum_11, mask=channel < tl.minimum(lower_c, right_c))


@triton.jit
def _sum_corners(corner_sums, out, count, block: tl.constexpr):
    """Sum the four corner sums (4, count) of every logit and round once."""
    index = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = index < count
    index_01 = index + count  # stays in 64 bits
    upper_sum = tl.load(corner_sums + index, mask=mask) + tl.load(corner_sums + index_01, mask=mask)
    lower_sum = tl.load(corner_sums + index_01 + count, mask=mask) + tl.load(
        corner_sums + index_01 + count + count, mask=mask
    )
    tl.store(out + index, (upper_sum + lower_sum).to(out.dtype.element_ty), mask=mask)


class _PixelScores(torch.autograd.Function):
    """Norm and score of every pixel; gradients flow to the logits."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int, sigmoid: bool
    ) -> tuple[Tensor, Tensor]:
        logits, target = _channels_last(logits), target.contiguous()
        norm = torch.empty(target.shape, dtype=torch.float32, device=logits.device)
        score = torch.empty_like(norm)
        _scores[cell_grid(logits)](
            logits, target, logits if offset is None else offset, norm, score, *kernel_arguments(logits,
            target.shape[-2:]), grouped, ignore=IGNORE, background=BACKGROUND, has_offset=offset is not None,
            has_group=grouped > 0, sigmoid=sigmoid, **cell_tile(logits, target.shape[-2:]), num_warps=NUM_WARPS,
        )  # fmt: skip
        ctx.save_for_backward(logits, target, norm, score, *(() if offset is None else (offset,)))
        ctx.grouped, ctx.sigmoid = grouped, sigmoid
        return norm, score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, target, norm, score, *offsets = ctx.saved_tensors
        classes, in_h, in_w = logits.shape[1:]
        grad = torch.empty_like(logits)
        grads = [gradient.float().contiguous() for gradient in gradients]
        images = max(1, MAX_CORNER_SUMS // (4 * classes * in_h * in_w))
        tensors = (logits, target, norm, score, *grads, grad)
        tile = cell_tile(logits, target.shape[-2:])
        cell_sizes = [side.max_cell_size for side in axis_tables(logits, target.shape[-2:])]
        whole_cell = cell_sizes[0] <= tile["tile_h"] and cell_sizes[1] <= tile["tile_w"]
        if whole_cell and tile["c_outer"] == 1:
            tile |= {"c_outer": 2, "c_inner": TILE_CHANNELS // 2}
        for z, y, norms, scores, g_norm, g_score, out in zip(*(m.split(images) for m in tensors), strict=True):
            corner_sums = torch.empty((4, z.numel()), dtype=torch.float32, device=z.device)
            _backward[cell_grid(z)](
                z, y, offsets[0] if offsets else z, norms, scores, g_norm, g_score, corner_sums, *kernel_arguments(z,
                y.shape[-2:]), ctx.grouped, background=BACKGROUND, has_offset=bool(offsets), has_group=ctx.grouped > 0,
                sigmoid=ctx.sigmoid, **tile, whole_cell=whole_cell, num_warps=NUM_WARPS,
            )  # fmt: skip
            _sum_corners[(triton.cdiv(z.numel(), BLOCK),)](corner_sums, out, z.numel(), block=BLOCK)
        return grad, None, None, None, None


def pixel_scores(
    logits: Tensor, target: Tensor, offset: Tensor | None = None, grouped: int = 0, sigmoid: bool = False
) -> tuple[Tensor, Tensor]:
    r"""Return log Σ_c exp z_{i,c} and s_i of every pixel, z = up(logits) + offset; both (B, H, W) float32.

    s_i = z_{i,y_i}, or log Σ_{c<k} exp z_{i,c} where y_i is background and k = ``grouped`` > 0; zero where y_i is
    IGNORE. With ``sigmoid`` the first is Σ_c log(1 + exp z_{i,c}) instead. The cross-entropy is their difference.
    Gradients flow to the logits only.

    Shapes: logits (B, C, h, w) of any float type and memory format; target (B, H, W) int64; offset (C,).
    """
    offset_f32 = None if offset is None else offset.detach().float().contiguous()
    norm, score = _PixelScores.apply(logits, target, offset_f32, grouped, sigmoid)
    return norm, score


@torch.no_grad()
def upsampled_argmax(logits: Tensor, size: tuple[int, int] | torch.Size, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return the largest channel of upsampled logits (B, C, h, w) at every pixel: (B, H, W) of a dtype."""
    logits, size = _channels_last(logits), torch.Size(size)
    best = torch.empty((len(logits), *size), dtype=dtype, device=logits.device)
    _argmax[cell_grid(logits)](
        logits, best, *kernel_arguments(logits, size), **cell_tile(logits, size), num_warps=NUM_WARPS
    )
    return best


def _channels_last(logits: Tensor) -> Tensor:
    """Return logits in channels_last, without a copy for networks that train in that layout."""
    return logits.contiguous(memory_format=torch.channels_last) if logits.shape[1] > 1 else logits.contiguous()
