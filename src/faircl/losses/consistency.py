"""Conditional structural consistency, Eqn 14-15."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.distributed import global_mean

ConsistencyForm = Literal["smooth", "literal"]


def consistency_loss(
    image: Tensor,
    logits: Tensor,
    valid: Tensor,
    sigma_x: float,
    sigma_y: float,
    window: int = 3,
    form: ConsistencyForm = "smooth",
) -> Tensor:
    r"""Neighbouring pixels of similar colour should be predicted alike.

    Over all pairs (i, j) within a window, with x the colour and y the softmax at network stride,

        smooth:   mean  exp(−‖x_i − x_j‖²/2σ_x²) · (1 − exp(−‖y_i − y_j‖²/2σ_y²))
        literal:  mean  exp(−‖x_i − x_j‖²/2σ_x² − ‖y_i − y_j‖²/2σ_y²)

    ``literal`` is Eqn 15 as printed. It is largest where equal-coloured neighbours agree, so minimising it drives them
    apart; it is kept for comparison. Pairs count whose both ends are valid: neither padding nor void.

    Shapes: image (B, 3, H, W) in [0, 1], area-pooled to the logits' size; logits (B, C, h, w); valid (B, h, w) bool.
    """
    x = F.adaptive_avg_pool2d(image, (logits.shape[-2], logits.shape[-1]))
    y = logits.softmax(1)
    total, pairs = logits.new_zeros(()), logits.new_zeros(())
    # A pair is symmetric, so half of the window's offsets see every pair once.
    reach = window // 2
    offsets = [(dy, dx) for dy in range(reach + 1) for dx in range(-reach, reach + 1) if (dy, dx) > (0, 0)]
    for dy, dx in offsets:
        near_x = torch.exp(-_pair_distance(x, dy, dx) / (2 * sigma_x**2))
        near_y = torch.exp(-_pair_distance(y, dy, dx) / (2 * sigma_y**2))
        pair = near_x * (1 - near_y) if form == "smooth" else near_x * near_y
        here, there = _pairs(valid, dy, dx)
        counted = here & there
        total, pairs = total + (pair * counted).sum(), pairs + counted.sum()
    return global_mean(total, pairs)


def _pairs(map: Tensor, dy: int, dx: int) -> tuple[Tensor, Tensor]:
    """Return each pixel and the one at (+dy, +dx), over the last two axes; empty where the offset leaves the map."""
    h, w = map.shape[-2:]
    here = map[..., : max(h - dy, 0), max(-dx, 0) : max(w - max(dx, 0), 0)]
    there = map[..., dy:, max(dx, 0) : max(w - max(-dx, 0), 0)]
    return here, there


def _pair_distance(map: Tensor, dy: int, dx: int) -> Tensor:
    """Squared distance between the ends of each pair; map (B, C, h, w) to (B, h − dy, w − |dx|)."""
    here, there = _pairs(map, dy, dx)
    return (here - there).square().sum(1)
