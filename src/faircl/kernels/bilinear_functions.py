"""Device functions for bilinear upsampling: bounds and corners of a cell, interpolation of its pixels."""

# Names: z00, z01, z10, z11 are the corners of a cell (row, column); fy, fx the weights of its lower row and right
# column; in_h, in_w the size of the logits. Channels of a tile are indexed (c_outer, c_inner). Logits are in
# channels_last and multiplied by log2 e, for exp2 and log2.

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def cell_bounds(starts_h, starts_w, in_w):
    """Return the cell (row, column) of this program and the range of its pixels: top, bottom, left, right."""
    cell_h, cell_w = tl.program_id(0) // (in_w + 1) - 1, tl.program_id(0) % (in_w + 1) - 1
    top, bottom = tl.load(starts_h + cell_h + 1), tl.load(starts_h + cell_h + 2)
    left, right = tl.load(starts_w + cell_w + 1), tl.load(starts_w + cell_w + 2)
    return cell_h, cell_w, top, bottom, left, right


@triton.jit
def load_corners(logits, offset, channel, c_mask, cell_h, cell_w, in_h, in_w, classes, has_offset: tl.constexpr):
    """Return the logits (c_outer, c_inner) at the corners of a cell in float32, times log2 e.

    Masked channels are −∞ in the first corner and 0 in the others, so that ``interpolate`` returns −∞ for them.
    """
    above, below = tl.maximum(cell_h, 0) * in_w, tl.minimum(cell_h + 1, in_h - 1) * in_w
    left, right = tl.maximum(cell_w, 0), tl.minimum(cell_w + 1, in_w - 1)
    base = logits + channel
    z00 = tl.load(base + (above + left) * classes, mask=c_mask, other=float("-inf")).to(tl.float32)
    z01 = tl.load(base + (above + right) * classes, mask=c_mask, other=0.0).to(tl.float32)
    z10 = tl.load(base + (below + left) * classes, mask=c_mask, other=0.0).to(tl.float32)
    z11 = tl.load(base + (below + right) * classes, mask=c_mask, other=0.0).to(tl.float32)
    if has_offset:
        bias = tl.load(offset + channel, mask=c_mask, other=0.0)
        z00, z01, z10, z11 = z00 + bias, z01 + bias, z10 + bias, z11 + bias
    return z00 * LOG2_E, z01 * LOG2_E, z10 * LOG2_E, z11 * LOG2_E


@triton.jit
def interpolate(z00, z01, z10, z11, c_mask, fy, fx):
    """Return upsampled logits (c_outer, tile_h, tile_w, c_inner) from four corners (c_outer, c_inner).

    fy (tile_h,), fx (tile_w,).
    """
    weight_y = fy[None, :, None]
    left = z00[:, None, :] + weight_y * tl.where(c_mask, z10 - z00, 0.0)[:, None, :]
    right = z01[:, None, :] + weight_y * (z11 - z01)[:, None, :]
    slope = tl.where(c_mask[:, None, :], right - left, 0.0)
    return left[:, :, None, :] + fx[None, None, :, None] * slope[:, :, None, :]


@triton.jit
def softplus2(z):
    """Return log2(1 + 2^z) without overflow."""
    return tl.maximum(z, 0.0) + tl.log2(1.0 + tl.exp2(-tl.abs(z)))


@triton.jit
def target_score(logits, offset, label, classes, cell_h, cell_w, in_h, in_w, fy, fx, has_offset: tl.constexpr):
    """Return the upsampled logit (tile_h, tile_w) of the label of every pixel, zero where it is not a class."""
    above, below = tl.maximum(cell_h, 0) * in_w, tl.minimum(cell_h + 1, in_h - 1) * in_w
    left, right = tl.maximum(cell_w, 0), tl.minimum(cell_w + 1, in_w - 1)
    label_mask = (label >= 0) & (label < classes)
    base = logits + label
    z00 = tl.load(base + (above + left) * classes, mask=label_mask, other=0.0).to(tl.float32)
    z01 = tl.load(base + (above + right) * classes, mask=label_mask, other=0.0).to(tl.float32)
    z10 = tl.load(base + (below + left) * classes, mask=label_mask, other=0.0).to(tl.float32)
    z11 = tl.load(base + (below + right) * classes, mask=label_mask, other=0.0).to(tl.float32)
    left_value = z00 + fy[:, None] * (z10 - z00)
    right_value = z01 + fy[:, None] * (z11 - z01)
    score = left_value + fx[None, :] * (right_value - left_value)
    if has_offset:
        score += tl.load(offset + label, mask=label_mask, other=0.0)
    return score


@triton.jit
def group_score(
    logits, offset, grouped, c_index, cell_h, cell_w, in_h, in_w, classes, fy, fx, has_offset: tl.constexpr,
    tile_h: tl.constexpr, tile_w: tl.constexpr, c_outer: tl.constexpr, c_inner: tl.constexpr,
):  # fmt: skip
    """Return the log-sum-exp (tile_h, tile_w) over the first ``grouped`` channels."""
    running_max = tl.full((tile_h, tile_w, c_inner), float("-inf"), tl.float32)
    for start in range(0, grouped, c_outer * c_inner):
        c_mask = start + c_index < grouped
        z00, z01, z10, z11 = load_corners(
            logits, offset, start + c_index, c_mask, cell_h, cell_w, in_h, in_w, classes, has_offset,
        )  # fmt: skip
        running_max = tl.maximum(running_max, tl.max(interpolate(z00, z01, z10, z11, c_mask, fy, fx), 0))
    max_score = tl.max(running_max, 2)
    exp_sum = tl.zeros((tile_h, tile_w, c_inner), tl.float32)
    for start in range(0, grouped, c_outer * c_inner):
        c_mask = start + c_index < grouped
        z00, z01, z10, z11 = load_corners(
            logits, offset, start + c_index, c_mask, cell_h, cell_w, in_h, in_w, classes, has_offset,
        )  # fmt: skip
        exp_sum += tl.sum(tl.exp2(interpolate(z00, z01, z10, z11, c_mask, fy, fx) - max_score[None, :, :, None]), 0)
    return (max_score + tl.log2(tl.sum(exp_sum, 2))) * LN_2
