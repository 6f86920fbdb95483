"""Log-sum-exp of the upsampled logits of every pixel, and the score of its target.

The upsampled logits of a batch are never stored. Where ``faircl.kernels`` run they exist in registers only; elsewhere
those of one image exist at a time. Results are the same up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl import kernels
from faircl.labels import BACKGROUND, IGNORE
from faircl.precision import at_least_float32


def pixel_scores(
    logits: Tensor, target: Tensor, offset: Tensor | None = None, grouped: int = 0
) -> tuple[Tensor, Tensor]:
    r"""Return log Σ_c exp z_{i,c} and s_i of every pixel, z = up(logits) + offset; both (B, H, W), at least float32.

    s_i = z_{i,y_i}, or log Σ_{c<k} exp z_{i,c} where y_i is background and k = ``grouped`` > 0; zero where y_i is
    IGNORE. Gradients flow to the logits alone: backward upsamples again.
    Shapes: logits (B, C, h, w) of any float type; target (B, H, W) int64; offset (C,).
    """
    if kernels.usable(logits):
        from faircl.kernels import upsampled_logits

        return upsampled_logits.pixel_scores(logits, target, offset, grouped)
    return scores_by_image(logits, target, offset, grouped)


def scores_by_image(
    logits: Tensor, target: Tensor, offset: Tensor | None = None, grouped: int = 0
) -> tuple[Tensor, Tensor]:
    """Return what ``pixel_scores`` does, image by image in plain torch."""
    if len(logits) == 0:
        nothing = at_least_float32(logits.sum()).expand(target.shape)
        return nothing, nothing
    found: tuple[Tensor, Tensor] = _Scores.apply(logits, target, offset, grouped)
    return found


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int) -> tuple[Tensor, Tensor]:
        parts = [_of_image(logits[k], target[k], offset, grouped) for k in range(len(logits))]
        lse, own = (torch.stack(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(logits, target, lse, own, *(() if offset is None else (offset,)))
        ctx.grouped = grouped
        return lse, own

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        logits, target, lse, own, *rest = ctx.saved_tensors
        grad = torch.empty_like(logits)
        for k in range(len(logits)):
            z = _upsampled(logits[k], target.shape[-2:], rest[0] if rest else None)
            given, given_own = (gradient[k] for gradient in gradients)
            # hit_c · g_own, where hit is the one channel of the target or the share of each in its group
            valid = target[k] != IGNORE
            label = target[k].where(valid, 0)[None]
            shared = torch.zeros_like(z)
            single = valid if ctx.grouped == 0 else valid & (target[k] != BACKGROUND)
            shared.scatter_(0, label, (given_own * single)[None].to(z))
            if ctx.grouped > 0:
                together = (valid & ~single).to(z) * given_own
                shared[: ctx.grouped] += torch.exp(z[: ctx.grouped] - own[k]) * together
            dense = z.sub_(lse[k]).exp_().mul_(given).add_(shared)
            grad[k] = _gathered(dense, logits.shape[1:])
        return grad, None, None, None


def _gathered(dense: Tensor, shape: torch.Size) -> Tensor:
    """Gradient (C, h, w) of logits from that of upsampled ones (C, H, W); repeatable where torch was asked to be."""
    if not torch.are_deterministic_algorithms_enabled():
        sizes = [*dense.shape[1:]], [1, *shape]
        gathered: Tensor = torch.ops.aten.upsample_bilinear2d_backward(dense[None], *sizes, False)[0]
        return gathered
    with torch.enable_grad():
        small = dense.new_zeros(shape, requires_grad=True)
        return torch.autograd.grad(_upsampled(small, dense.shape[1:], None), small, dense)[0]


def _of_image(logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int) -> tuple[Tensor, Tensor]:
    """Both scores of an image, (H, W)."""
    z = _upsampled(logits, target.shape, offset)
    valid = target != IGNORE
    own = z.gather(0, target.where(valid, 0)[None])[0]
    if grouped > 0:
        own = own.where(target != BACKGROUND, z[:grouped].logsumexp(0))
    return z.logsumexp(0), own.where(valid, 0.0)


def _upsampled(logits: Tensor, size: torch.Size, offset: Tensor | None) -> Tensor:
    logits = at_least_float32(logits)
    if offset is not None:
        logits = logits + offset[:, None, None].to(logits)
    return F.interpolate(logits[None], tuple(size), mode="bilinear", align_corners=False)[0]
