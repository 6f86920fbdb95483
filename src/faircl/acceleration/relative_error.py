"""How far the outputs of a faster pass lie from those of the network."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def relative_error(found: Iterable[Tensor], exact: Iterable[Tensor]) -> float:
    """Return the largest ‖a − b‖ / ‖b‖ of pairs of tensors: 0 where both are equal, NaN if one has a NaN."""
    errors = []
    for one, other in zip(found, exact, strict=True):
        difference = (one - other).norm()
        errors.append(torch.where(difference == 0, difference, difference / other.norm()))
    return float(torch.stack(errors).max())
