"""L_cons, conditional structural consistency, Eqn 14-15 of FairCL."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl import kernels
from faircl.distributed import global_mean
from faircl.precision import at_least_float32

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
    r"""Penalise different predictions of neighbouring pixels of similar colour.

    The mean is over all pairs (i, j) of valid pixels within a window, with x the colour and y the softmax at network
    stride:

        smooth:   mean  exp(−‖x_i − x_j‖²/2σ_x²) · (1 − exp(−‖y_i − y_j‖²/2σ_y²))
        literal:  mean  exp(−‖x_i − x_j‖²/2σ_x² − ‖y_i − y_j‖²/2σ_y²)

    ``literal`` is Eqn 15 as printed, kept for comparison: it is largest where neighbours of equal colour agree, so
    minimising it makes them disagree. Valid pixels are neither padding nor IGNORE.

    Shapes: image (B, 3, H, W) in [0, 1], area-pooled to the logits' size; logits (B, C, h, w); valid (B, h, w) bool.
    """
    x = F.adaptive_avg_pool2d(image, (logits.shape[-2], logits.shape[-1]))
    settings = (sigma_x, sigma_y, window // 2, form)
    if kernels.usable(logits):
        from faircl.kernels.consistency import pair_sums

        total, pairs = pair_sums(logits, x, valid, *settings)
    else:
        exact = at_least_float32(logits)
        total, pairs = _PairSums.apply(exact, x, valid, *settings)
    return global_mean(total, pairs)


class _PairSums(torch.autograd.Function):
    r"""The sum of the loss over all pairs, and their number.

    With d = ‖y_i − y_j‖² = ‖y_i‖² + ‖y_j‖² − 2·y_i·y_j and w the similarity of colours, a pair's gradient is
    r·(y_i − y_j) at i and r·(y_j − y_i) at j, r = ±w·exp(−d/2σ_y²)/σ_y². The r, one number per pair, and y are saved
    for the backward pass.

    Shapes: logits (B, C, h, w), x (B, 3, h, w), valid (B, h, w); values per pair (offsets, B, h, w).
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        x: Tensor,
        valid: Tensor,
        sigma_x: float,
        sigma_y: float,
        radius: int,
        form: ConsistencyForm,
    ) -> tuple[Tensor, Tensor]:
        # Pairs are symmetric: half of the offsets of the window cover every pair once.
        offsets = [(dy, dx) for dy in range(radius + 1) for dx in range(-radius, radius + 1) if (dy, dx) > (0, 0)]
        y = logits.softmax(1)
        squares = torch.linalg.vector_norm(y, dim=1).square_()
        products = squares.new_zeros((len(offsets), *squares.shape))
        for offset, product in zip(offsets, products, strict=True):
            first, second = _pairs(y, *offset)
            torch.sum(first * second, 1, out=_pairs(product, *offset)[0])
        y_distance = (squares + _neighbours(squares, offsets, radius)).sub_(products, alpha=2).clamp_min_(0)
        y_similarity = y_distance.mul_(-0.5 / sigma_y**2).exp_()
        valid_pairs = valid & _neighbours(valid, offsets, radius)
        x_distance = (x - _neighbours(x, offsets, radius)).square_().sum(2)
        x_similarity = x_distance.mul_(-0.5 / sigma_x**2).exp_().mul_(valid_pairs)
        factor = 1 - y_similarity if form == "smooth" else y_similarity
        total, pairs = (x_similarity * factor).sum(), valid_pairs.sum()
        sign = 1 if form == "smooth" else -1
        ctx.save_for_backward(y, x_similarity.mul_(y_similarity).mul_(sign / sigma_y**2))
        ctx.offsets = offsets
        ctx.mark_non_differentiable(pairs)
        return total, pairs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        y, coefficients = ctx.saved_tensors
        grad_y, sums = torch.zeros_like(y), torch.zeros_like(y[:, 0])
        coefficients = coefficients * scale
        # Σ_j r·(y_i − y_j) = y_i·Σ_j r − Σ_j r·y_j
        for offset, coefficient in zip(ctx.offsets, coefficients, strict=True):
            coefficient = _pairs(coefficient, *offset)[0]
            for grad_end, other_end, coefficient_sum in zip(
                _pairs(grad_y, *offset), reversed(_pairs(y, *offset)), _pairs(sums, *offset), strict=True
            ):
                grad_end.addcmul_(other_end, coefficient[:, None], value=-1)
                coefficient_sum += coefficient
        grad_y.addcmul_(y, sums[:, None])
        grad_y.sub_((grad_y * y).sum(1, keepdim=True)).mul_(y)
        return grad_y, None, None, None, None, None, None


def _neighbours(map: Tensor, offsets: list[tuple[int, int]], radius: int) -> Tensor:
    """Return the neighbour of every pixel at each offset, (offsets, *map.shape); zero beyond the border."""
    h, w = map.shape[-2:]
    padded = F.pad(map, (radius, radius, 0, radius))
    return torch.stack([padded[..., dy : dy + h, radius + dx : radius + dx + w] for dy, dx in offsets])


def _pairs(map: Tensor, dy: int, dx: int) -> tuple[Tensor, Tensor]:
    """Return the pixels that have a neighbour at (+dy, +dx) and these neighbours, over the last two axes."""
    h, w = map.shape[-2:]
    first = map[..., : max(h - dy, 0), max(-dx, 0) : max(w - max(dx, 0), 0)]
    second = map[..., dy:, max(dx, 0) : max(w - max(-dx, 0), 0)]
    return first, second
