"""Resizing feature maps."""

from __future__ import annotations

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
    device = x.device.type
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return F.interpolate(x, size, mode=mode, align_corners=corners)
    with torch.autocast(device, enabled=False):
        return F.interpolate(x, size, mode=mode, align_corners=corners)
