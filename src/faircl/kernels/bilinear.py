"""What kernels of upsampled logits share: a cell's bounds, its corners, and the pixels mixed from them."""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def cell_bounds(starts_h, starts_w, small_w):
    """Return the program's cell, and the rows and columns of pixels from its first to the next one's."""
    cell_h, cell_w = tl.program_id(0) // (small_w + 1) - 1, tl.program_id(0) % (small_w + 1) - 1
    top, bottom = tl.load(starts_h + cell_h + 1), tl.load(starts_h + cell_h + 2)
    left, right = tl.load(starts_w + cell_w + 1), tl.load(starts_w + cell_w + 2)
    return cell_h, cell_w, top, bottom, left, right


@triton.jit
def corners(logits, offset, channel, inside, cell_h, cell_w, small_h, small_w, classes, has_offset: tl.constexpr):
    """Logits (high, low) at a cell's corners in float32, times log2 e; −∞ in the first beyond the classes."""
    above, below = tl.maximum(cell_h, 0) * small_w, tl.minimum(cell_h + 1, small_h - 1) * small_w
    left, right = tl.maximum(cell_w, 0), tl.minimum(cell_w + 1, small_w - 1)
    at = logits + channel
    aa = tl.load(at + (above + left) * classes, mask=inside, other=float("-inf")).to(tl.float32)
    ab = tl.load(at + (above + right) * classes, mask=inside, other=0.0).to(tl.float32)
    ba = tl.load(at + (below + left) * classes, mask=inside, other=0.0).to(tl.float32)
    bb = tl.load(at + (below + right) * classes, mask=inside, other=0.0).to(tl.float32)
    if has_offset:
        added = tl.load(offset + channel, mask=inside, other=0.0)
        aa, ab, ba, bb = aa + added, ab + added, ba + added, bb + added
    return aa * LOG2_E, ab * LOG2_E, ba * LOG2_E, bb * LOG2_E


@triton.jit
def mixed(aa, ab, ba, bb, inside, fy, fx):
    """Upsampled logits (high, rows, columns, low) between four corners (high, low); fy (rows,), fx (columns,)."""
    along = fy[None, :, None]
    left = aa[:, None, :] + along * tl.where(inside, ba - aa, 0.0)[:, None, :]
    right = ab[:, None, :] + along * (bb - ab)[:, None, :]
    slope = tl.where(inside[:, None, :], right - left, 0.0)
    return left[:, :, None, :] + fx[None, None, :, None] * slope[:, :, None, :]


@triton.jit
def softplus2(z):
    """log2(1 + 2^z), where no power overflows."""
    return tl.maximum(z, 0.0) + tl.log2(1.0 + tl.exp2(-tl.abs(z)))


@triton.jit
def target_score(
    logits, offset, label, classes, cell_h, cell_w, small_h, small_w, fy, fx, has_offset: tl.constexpr
):  # fmt: skip
    """Upsampled logit (rows, columns) of every pixel's label, zero where it is no class."""
    above, below = tl.maximum(cell_h, 0) * small_w, tl.minimum(cell_h + 1, small_h - 1) * small_w
    left, right = tl.maximum(cell_w, 0), tl.minimum(cell_w + 1, small_w - 1)
    known = (label >= 0) & (label < classes)
    at = logits + label
    aa = tl.load(at + (above + left) * classes, mask=known, other=0.0).to(tl.float32)
    ab = tl.load(at + (above + right) * classes, mask=known, other=0.0).to(tl.float32)
    ba = tl.load(at + (below + left) * classes, mask=known, other=0.0).to(tl.float32)
    bb = tl.load(at + (below + right) * classes, mask=known, other=0.0).to(tl.float32)
    first = aa + fy[:, None] * (ba - aa)
    second = ab + fy[:, None] * (bb - ab)
    score = first + fx[None, :] * (second - first)
    if has_offset:
        score += tl.load(offset + label, mask=known, other=0.0)
    return score


@triton.jit
def group_score(
    logits, offset, grouped, number, cell_h, cell_w, small_h, small_w, classes, fy, fx, has_offset: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, high: tl.constexpr, low: tl.constexpr,
):  # fmt: skip
    """Return log Σ exp (rows, columns) over the first ``grouped`` channels."""
    highest = tl.full((rows, columns, low), float("-inf"), tl.float32)
    for start in range(0, grouped, high * low):
        inside = start + number < grouped
        aa, ab, ba, bb = corners(logits, offset, start + number, inside, cell_h, cell_w, small_h, small_w, classes,
                                  has_offset)  # fmt: skip
        highest = tl.maximum(highest, tl.max(mixed(aa, ab, ba, bb, inside, fy, fx), 0))
    top_score = tl.max(highest, 2)
    sum_ = tl.zeros((rows, columns, low), tl.float32)
    for start in range(0, grouped, high * low):
        inside = start + number < grouped
        aa, ab, ba, bb = corners(logits, offset, start + number, inside, cell_h, cell_w, small_h, small_w, classes,
                                  has_offset)  # fmt: skip
        sum_ += tl.sum(tl.exp2(mixed(aa, ab, ba, bb, inside, fy, fx) - top_score[None, :, :, None]), 0)
    return (top_score + tl.log2(tl.sum(sum_, 2))) * LN_2
