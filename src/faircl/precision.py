"""Float promotion: losses and metrics compute in at least float32, whatever autocast has made of their input."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return a tensor in float32, or in float64 if it is that already."""
    return x.to(at_least_float32_dtype(x))


def at_least_float32_dtype(x: Tensor) -> torch.dtype:
    """Return float32, or float64 for a tensor of that type."""
    return torch.promote_types(x.dtype, torch.float32)
