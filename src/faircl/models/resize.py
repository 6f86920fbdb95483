"""Resizing feature maps."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def resize(x: Tensor, size: tuple[int, ...], mode: Literal["bilinear", "nearest"] = "bilinear") -> Tensor:
    """Resize maps (B, D, h, w) to a size, in their own precision.

    Autocast would interpolate, and then keep, the largest maps of a decoder in float32: twice the memory and time for
    values that were computed in 16 bits.
    """
    if x.shape[-2:] == size:
        return x
    corners = None if mode == "nearest" else False
    with own_precision(x.device.type):
        return F.interpolate(x, size, mode=mode, align_corners=corners)


def own_precision(device: str) -> AbstractContextManager[object]:
    """Leave autocast for a while: what is computed keeps the precision of its operands."""
    if device == "meta" or not torch.is_autocast_enabled(device):  # torch.compile understands this question
        return nullcontext()
    return torch.autocast(device, enabled=False)
