"""Cross-entropy with soft labels: a few classes per cell with their shares, at network stride."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from faircl.precision import at_least_float32


def soft_cross_entropy_sum(
    logits: Tensor, classes: Tensor, shares: Tensor, pixels: Tensor, class_weight: Tensor | None = None
) -> Tensor:
    r"""Return the weighted cross-entropy of soft labels, summed over cells.

        L = Σ_j a_j · u_j · H(q_j, p_j),   H(q, p) = log Σ_c exp z_c − Σ_c q_c·z_c,   u = Σ_c q_c·w_c

    with p = softmax(z), a the ``pixels`` that a cell stands for and w the ``class_weight``. The weight multiplies the
    whole loss of a cell, so that its minimum stays at p = q; weights inside H would move it to p ∝ w·q, and a network
    that learns from its predecessor would move further at every step.

    Shapes: logits (B, C, h, w); classes (B, h, w, n) int64 and shares (B, h, w, n), q with a sum of one over n; pixels
    (B, h, w); class_weight (C,). Channels that ``classes`` leaves out have q = 0.
    """
    logits = at_least_float32(logits)
    scores = logits.permute(0, 2, 3, 1).gather(3, classes)
    loss = logits.logsumexp(1) - (shares * scores).sum(3)
    weight = pixels if class_weight is None else pixels * (shares * class_weight[classes]).sum(3)
    return (weight * loss).sum()


def marked_pixels(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """Return how many marked pixels every cell of a coarser grid has: mask (B, H, W) bool to (B, h, w) float."""
    cell = mask.shape[-2] * mask.shape[-1] / (size[0] * size[1])
    return F.adaptive_avg_pool2d(mask[:, None].float(), size)[:, 0] * cell
