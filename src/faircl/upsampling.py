"""Bilinear upsampling of logits: as a tensor, and straight to the largest channel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl import kernels
from faircl.precision import at_least_float32


def upsampled(logits: Tensor, size: torch.Size | tuple[int, int]) -> Tensor:
    """Bring logits (B, C, h, w) to a size (H, W) bilinearly, in at least float32."""
    logits = at_least_float32(logits)
    if logits.shape[-2:] == tuple(size):
        return logits
    return F.interpolate(logits, tuple(size), mode="bilinear", align_corners=False)


@torch.no_grad()
def upsampled_argmax(logits: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Return the largest channel of upsampled logits at every pixel: (B, C, h, w) to (B, H, W) int64.

    On a GPU one kernel does both; elsewhere the upsampled logits of one image exist at a time.
    """
    if logits.shape[-2:] == torch.Size(size):
        return logits.argmax(1)
    if kernels.usable(logits):
        from faircl.kernels import upsampled_logits

        return upsampled_logits.upsampled_argmax(logits, torch.Size(size))
    return torch.stack([upsampled(one[None], size)[0].argmax(0) for one in logits])
