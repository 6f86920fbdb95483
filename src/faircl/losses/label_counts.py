"""Counting of labels without synchronising with the GPU."""

from __future__ import annotations

import torch
from torch import Tensor


def count_labels(labels: Tensor, classes: int) -> Tensor:
    """Return the number of labels per class: (…) int64 to (classes,) int64.

    Labels must be in 0 … classes − 1. ``torch.bincount`` gives the same result, but reads the largest label from the
    device first, which waits for it.
    """
    flat = labels.flatten()
    return torch.zeros(classes, dtype=torch.int64, device=flat.device).index_add_(0, flat, torch.ones_like(flat))
