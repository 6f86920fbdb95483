"""Conditional structural consistency, Eqn 14-15."""

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
    r"""Neighbouring pixels of similar colour should be predicted alike.

    Over all pairs (i, j) within a window, with x the colour and y the softmax at network stride,

        smooth:   mean  exp(−‖x_i − x_j‖²/2σ_x²) · (1 − exp(−‖y_i − y_j‖²/2σ_y²))
        literal:  mean  exp(−‖x_i − x_j‖²/2σ_x² − ‖y_i − y_j‖²/2σ_y²)

    ``literal`` is Eqn 15 as printed. It is largest where equal-coloured neighbours agree, so minimising it drives them
    apart; it is kept for comparison. Pairs count whose both ends are valid: neither padding nor ignored.

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
    r"""Sum over all pairs, and their number.

    With d = ‖y_i − y_j‖² = ‖y_i‖² + ‖y_j‖² − 2·y_i·y_j and w the similarity of colours, a pair's gradient is
    r·(y_i − y_j) at i and its opposite at j, r = ±w·exp(−d/2σ_y²)/σ_y². The r, one number per pair, and y are kept
    for the backward pass.
    Shapes: logits (B, C, h, w), x (B, 3, h, w), valid (B, h, w); of all pairs at once (offsets, B, h, w).
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        x: Tensor,
        valid: Tensor,
        sigma_x: float,
        sigma_y: float,
        reach: int,
        form: ConsistencyForm,
    ) -> tuple[Tensor, Tensor]:
        # A pair is symmetric, so half of the window's offsets see every pair once.
        offsets = [(dy, dx) for dy in range(reach + 1) for dx in range(-reach, reach + 1) if (dy, dx) > (0, 0)]
        y = logits.softmax(1)
        squares = torch.linalg.vector_norm(y, dim=1).square_()
        products = squares.new_zeros((len(offsets), *squares.shape))
        for offset, product in zip(offsets, products, strict=True):
            here, there = _pairs(y, *offset)
            torch.sum(here * there, 1, out=_pairs(product, *offset)[0])
        apart = (squares + _shifted(squares, offsets, reach)).sub_(products, alpha=2).clamp_min_(0)
        near = apart.mul_(-0.5 / sigma_y**2).exp_()
        counted = valid & _shifted(valid, offsets, reach)
        alike = (x - _shifted(x, offsets, reach)).square_().sum(2).mul_(-0.5 / sigma_x**2).exp_().mul_(counted)
        total, pairs = (alike * (1 - near if form == "smooth" else near)).sum(), counted.sum()
        sign = 1 if form == "smooth" else -1
        ctx.save_for_backward(y, alike.mul_(near).mul_(sign / sigma_y**2))
        ctx.offsets = offsets
        ctx.mark_non_differentiable(pairs)
        return total, pairs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        y, rates = ctx.saved_tensors
        of_y, sums = torch.zeros_like(y), torch.zeros_like(y[:, 0])
        rates = rates * scale
        # Σ_j r·(y_i − y_j) = y_i·Σ_j r − Σ_j r·y_j
        for offset, rate in zip(ctx.offsets, rates, strict=True):
            rate = _pairs(rate, *offset)[0]
            for end, other, at in zip(
                _pairs(of_y, *offset), reversed(_pairs(y, *offset)), _pairs(sums, *offset), strict=True
            ):
                end.addcmul_(other, rate[:, None], value=-1)
                at += rate
        of_y.addcmul_(y, sums[:, None])
        of_y.sub_((of_y * y).sum(1, keepdim=True)).mul_(y)
        return of_y, None, None, None, None, None, None


def _shifted(map: Tensor, offsets: list[tuple[int, int]], reach: int) -> Tensor:
    """Every pixel's neighbour at each offset, (offsets, *map.shape); zero beyond the map."""
    h, w = map.shape[-2:]
    padded = F.pad(map, (reach, reach, 0, reach))
    return torch.stack([padded[..., dy : dy + h, reach + dx : reach + dx + w] for dy, dx in offsets])


def _pairs(map: Tensor, dy: int, dx: int) -> tuple[Tensor, Tensor]:
    """Return each pixel and the one at (+dy, +dx), over the last two axes; empty where the offset leaves the map."""
    h, w = map.shape[-2:]
    here = map[..., : max(h - dy, 0), max(-dx, 0) : max(w - max(dx, 0), 0)]
    there = map[..., dy:, max(dx, 0) : max(w - max(-dx, 0), 0)]
    return here, there
