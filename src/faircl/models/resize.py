"""Resizing feature maps."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def resize(x: Tensor, size: tuple[int, ...], mode: Literal["bilinear", "nearest"] = "bilinear") -> Tensor:
    """Resize maps (B, D, h, w) to a size (H, W), keeping their precision.

    Under autocast the output would be float32: twice the memory and time for values that were computed in 16 bits.
    """
    if same_size(x, size):
        return x
    align_corners = None if mode == "nearest" else False
    with autocast_disabled(x.device.type):
        return F.interpolate(x, size, mode=mode, align_corners=align_corners)


def same_size(x: Tensor, size: tuple[int, ...]) -> bool:
    """Whether maps (B, D, h, w) have a size already, so that resizing them would change nothing.

    While a network is exported the answer is no: its sizes are symbols then, and the branch taken for the example's
    sizes would be fixed for all. Resizing to the same size returns the same numbers.
    """
    return not torch.compiler.is_exporting() and x.shape[-2:] == size


def at_least(side: int, least: int) -> int:
    """Return the larger of two sides; while a network is exported the first is a symbol, which ``max`` would fix."""
    return torch.sym_max(side, least)  # type: ignore[return-value]


def autocast_disabled(device: str) -> AbstractContextManager[object]:
    """Return a context without autocast, in which operations keep the precision of their operands."""
    if device == "meta" or not torch.is_autocast_enabled(device):  # torch.compile can trace this condition
        return nullcontext()
    return torch.autocast(device, enabled=False)
