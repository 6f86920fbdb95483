"""L_iou of a batch: labels and soft labels together, at network stride; on large maps, at some of their cells."""

from __future__ import annotations

import math

from torch import Tensor

from faircl.loading.batch import SoftTargets
from faircl.losses.iou import iou_loss, label_shares
from faircl.methods.feature_grid import to_stride
from faircl.precision import at_least_float32

CELLS = 64
"""Cells of a side that are compared, at most; of a larger map every n-th row and column."""


def iou_term(
    logits: Tensor, targets: Tensor, unlabelled: Tensor, soft: SoftTargets | None, offset: Tensor | None
) -> Tensor:
    """Return L_iou of p = softmax(z + a·o), with o the offset and a the share of a cell's pixels that have a label.

    ``unlabelled`` marks pixels that have the soft label of their cell, where there are soft labels. Other pixels that
    are IGNORE in ``targets`` do not count.

    Shapes: logits z (B, K, h, w); targets (B, H, W) int64; unlabelled (B, H, W) bool; soft (B, h, w, n); offset o (K,).
    """
    (rows, columns), (height, width) = logits.shape[-2:], targets.shape[-2:]
    every = slice(None, None, math.ceil(max(rows, columns) / CELLS))
    # A power of two, so that shares are added exactly, in any order.
    side = next((side for side in (4, 2) if rows * side <= height and columns * side <= width), 1)

    def cells(pixels: Tensor) -> Tensor:
        taken = to_stride(pixels, (rows * side, columns * side))
        return taken.reshape(len(pixels), rows, side, columns, side)[:, every, :, every]

    logits = at_least_float32(logits[..., every, every])
    shares = label_shares(cells(targets), logits.shape[1])
    labelled = known = 1 - shares[:, -1:]
    if soft is not None:
        marked = cells(unlabelled).to(shares).mean((2, 4))[:, None]
        classes, part = (one[:, every, every].permute(0, 3, 1, 2) for one in soft)
        shares.scatter_add_(1, classes, part * marked)
        known = labelled + marked
    if offset is not None:
        logits = logits + labelled * offset[:, None, None]
    return iou_loss(logits.softmax(1) * known, shares[:, :-1])
