"""Log-sum-exp of the upsampled logits of every pixel, and the score of its target.

The upsampled logits of a batch are never stored: the Triton kernels of ``faircl.kernels.upsampled_logits`` compute them
in registers, and the plain path those of one image at a time. Results are the same up to rounding.
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
    IGNORE. Gradients flow to the logits only; the backward pass upsamples them again.

    Shapes: logits (B, C, h, w) of any float type; target (B, H, W) int64; offset (C,).
    """
    if kernels.usable(logits):
        from faircl.kernels import upsampled_logits

        return upsampled_logits.pixel_scores(logits, target, offset, grouped)
    return pixel_scores_per_image(logits, target, offset, grouped)


def pixel_scores_per_image(
    logits: Tensor, target: Tensor, offset: Tensor | None = None, grouped: int = 0
) -> tuple[Tensor, Tensor]:
    """Return ``pixel_scores``, computed image by image in plain torch."""
    if len(logits) == 0:
        empty = at_least_float32(logits.sum()).expand(target.shape)
        return empty, empty
    scores: tuple[Tensor, Tensor] = _PixelScores.apply(logits, target, offset, grouped)
    return scores


class _PixelScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int) -> tuple[Tensor, Tensor]:
        parts = [_image_scores(logits[b], target[b], offset, grouped) for b in range(len(logits))]
        lse, score = (torch.stack(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(logits, target, lse, score, *(() if offset is None else (offset,)))
        ctx.grouped = grouped
        return lse, score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        logits, target, lse, score, *offsets = ctx.saved_tensors
        grad = torch.empty_like(logits)
        for b in range(len(logits)):
            z = _upsampled(logits[b], target.shape[-2:], offsets[0] if offsets else None)
            grad_lse, grad_score = (gradient[b] for gradient in gradients)
            # The gradient of the score by z: one at the channel of the target, or the softmax within the group.
            valid = target[b] != IGNORE
            label = target[b].where(valid, 0)[None]
            score_gradient = torch.zeros_like(z)
            one_channel = valid if ctx.grouped == 0 else valid & (target[b] != BACKGROUND)
            score_gradient.scatter_(0, label, (grad_score * one_channel)[None].to(z))
            if ctx.grouped > 0:
                group_gradient = (valid & ~one_channel).to(z) * grad_score
                score_gradient[: ctx.grouped] += torch.exp(z[: ctx.grouped] - score[b]) * group_gradient
            grad_upsampled = z.sub_(lse[b]).exp_().mul_(grad_lse).add_(score_gradient)
            grad[b] = _downsample_gradient(grad_upsampled, logits.shape[1:])
        return grad, None, None, None


def _downsample_gradient(grad_upsampled: Tensor, shape: torch.Size) -> Tensor:
    """Return the gradient (C, h, w) of logits from that of upsampled logits (C, H, W).

    It is deterministic if torch's deterministic algorithms are enabled.
    """
    if not torch.are_deterministic_algorithms_enabled():
        sizes = [*grad_upsampled.shape[1:]], [1, *shape]
        grad: Tensor = torch.ops.aten.upsample_bilinear2d_backward(grad_upsampled[None], *sizes, False)[0]
        return grad
    with torch.enable_grad():
        logits = grad_upsampled.new_zeros(shape, requires_grad=True)
        return torch.autograd.grad(_upsampled(logits, grad_upsampled.shape[1:], None), logits, grad_upsampled)[0]


def _image_scores(logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int) -> tuple[Tensor, Tensor]:
    """Return both scores of one image, (H, W) each."""
    z = _upsampled(logits, target.shape, offset)
    valid = target != IGNORE
    score = z.gather(0, target.where(valid, 0)[None])[0]
    if grouped > 0:
        score = score.where(target != BACKGROUND, z[:grouped].logsumexp(0))
    return z.logsumexp(0), score.where(valid, 0.0)


def _upsampled(logits: Tensor, size: torch.Size, offset: Tensor | None) -> Tensor:
    logits = at_least_float32(logits)
    if offset is not None:
        logits = logits + offset[:, None, None].to(logits)
    return F.interpolate(logits[None], tuple(size), mode="bilinear", align_corners=False)[0]
