"""Bilinear upsampling of logits, and the argmax of upsampled logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl import kernels
from faircl.precision import at_least_float32


def upsampled(logits: Tensor, size: torch.Size | tuple[int, int]) -> Tensor:
    """Resize logits (B, C, h, w) bilinearly to a size (H, W), in at least float32."""
    logits = at_least_float32(logits)
    if logits.shape[-2:] == tuple(size):
        return logits
    return F.interpolate(logits, tuple(size), mode="bilinear", align_corners=False)


@torch.no_grad()
def upsampled_argmax(logits: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Return the largest channel of upsampled logits at every pixel: (B, C, h, w) to (B, H, W) int64.

    The kernel ``faircl.kernels.upsampled_logits.upsampled_argmax`` does not store the upsampled logits; the plain path
    stores those of one image at a time.
    """
    if logits.shape[-2:] == torch.Size(size):
        return logits.argmax(1)
    if kernels.usable(logits):
        from faircl.kernels import upsampled_logits

        return upsampled_logits.upsampled_argmax(logits, torch.Size(size))
    return torch.stack([upsampled(image_logits[None], size)[0].argmax(0) for image_logits in logits])
