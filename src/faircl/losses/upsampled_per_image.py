"""Losses of upsampled logits, computed image by image to save memory.

For losses that need all logits of a pixel and have no kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.losses.cross_entropy import is_small
from faircl.upsampling import upsampled

PixelLoss = Callable[[Tensor, Tensor], Tensor]


def upsampled_per_image(pixel_loss: PixelLoss, logits: Tensor, target: Tensor) -> Tensor:
    """Return pixel_loss(upsampled logits, target) of a batch, (B, H, W), in at least float32.

    ``pixel_loss`` maps logits (b, C, H, W) and target (b, H, W) to values (b, H, W) without changing its arguments.
    Only the logits at network stride are saved for the backward pass, which upsamples them again: the upsampled logits
    (1, C, H, W) of one image exist at a time. On a CPU small batches are computed at once, which is faster.

    Shapes: logits (B, C, h, w) of any float type; target (B, H, W) int64. Gradients flow to the logits only.
    """
    if is_small(logits, target) or len(logits) == 0:
        return _upsampled_loss(pixel_loss, logits, target)
    loss: Tensor = _UpsampledPerImage.apply(logits, target, pixel_loss)
    return loss


def _upsampled_loss(pixel_loss: PixelLoss, logits: Tensor, target: Tensor) -> Tensor:
    return pixel_loss(upsampled(logits, target.shape[-2:]), target)


class _UpsampledPerImage(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, pixel_loss: PixelLoss) -> Tensor:
        ctx.save_for_backward(logits, target)
        ctx.pixel_loss = pixel_loss
        return torch.cat(
            [_upsampled_loss(pixel_loss, logits[b : b + 1], target[b : b + 1]) for b in range(len(logits))]
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, target = ctx.saved_tensors
        grad = torch.empty_like(logits)
        for b in range(len(logits)):
            with torch.enable_grad():
                image_logits = logits[b : b + 1].detach().requires_grad_()
                values = _upsampled_loss(ctx.pixel_loss, image_logits, target[b : b + 1])
            grad[b : b + 1] = torch.autograd.grad(values, image_logits, gradients[0][b : b + 1])[0]
        return grad, None, None
