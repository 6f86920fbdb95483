"""Float promotion: losses and metrics compute in at least float32, also under autocast."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return a tensor as float32, or unchanged if it is float64."""
    return x.to(at_least_float32_dtype(x))


def at_least_float32_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of ``at_least_float32``: float64 for float64 tensors, float32 for others."""
    return torch.promote_types(x.dtype, torch.float32)
