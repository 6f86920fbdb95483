"""Sums over processes that cost nothing when there is only one.

Means in this project are global: a loss over valid pixels is the local sum times the number of processes over the
all-reduced count, so that averaging gradients over N processes gives exactly the gradient of one.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Return the number of processes in the run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


@torch.no_grad()
def global_sum(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, detached."""
    value = value.detach()
    if world_size() == 1:
        return value
    value = value.clone()
    dist.all_reduce(value)
    return value


def global_mean(total: Tensor, count: Tensor | float) -> Tensor:
    """Return total / count with the count summed over processes; nothing counted gives zero, not NaN.

    Shapes: total () with gradient, count (). The gradient, averaged over processes as DDP does, is that of the mean
    over all processes' elements.
    """
    count = global_sum(torch.as_tensor(count, dtype=total.dtype, device=total.device))
    return total * (world_size() / count.clamp_min(1.0))
