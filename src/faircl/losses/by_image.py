"""Losses that need all upsampled logits of a pixel at once, image by image: those of a batch never exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.losses.cross_entropy import is_small
from faircl.upsampling import upsampled

Score = Callable[[Tensor, Tensor], Tensor]


def by_image(score: Score, logits: Tensor, target: Tensor) -> Tensor:
    """Return score(upsampled logits, target) of a batch, (B, H, W), at least float32.

    ``score`` takes logits (b, C, H, W) and target (b, H, W) of some images to values (b, H, W), and changes neither.
    Forward keeps nothing of an image but its small logits; backward upsamples them and scores again, so that in both
    the (1, C, H, W) of one image are there at a time. A CPU takes small batches at once, which is faster.
    Shapes: logits (B, C, h, w) of any float type; target (B, H, W) int64. Gradients flow to the logits alone.
    """
    if is_small(logits, target) or len(logits) == 0:
        return _scored(score, logits, target)
    found: Tensor = _ByImage.apply(logits, target, score)
    return found


def _scored(score: Score, logits: Tensor, target: Tensor) -> Tensor:
    return score(upsampled(logits, target.shape[-2:]), target)


class _ByImage(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, score: Score) -> Tensor:
        ctx.save_for_backward(logits, target)
        ctx.score = score
        return torch.cat([_scored(score, logits[k : k + 1], target[k : k + 1]) for k in range(len(logits))])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, target = ctx.saved_tensors
        grad = torch.empty_like(logits)
        for k in range(len(logits)):
            with torch.enable_grad():
                small = logits[k : k + 1].detach().requires_grad_()
                values = _scored(ctx.score, small, target[k : k + 1])
            grad[k : k + 1] = torch.autograd.grad(values, small, gradients[0][k : k + 1])[0]
        return grad, None, None
