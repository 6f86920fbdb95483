"""Pooled cube distillation: features pooled over pixels and over channels stay close to the old network's (RCIL)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.distributed import global_mean
from faircl.precision import at_least_float32

WINDOWS = (4, 8, 12, 16, 20, 24)
"""Sides of RCIL's pooling windows, in pixels."""
NEIGHBOURS = 3
"""Number of neighbouring channels that RCIL pools over."""


def spatial_pooled(new: Tensor, old: Tensor, windows: Sequence[int] = WINDOWS) -> Tensor:
    r"""Distance of features, average-pooled over square windows at every position of the map (RCIL).

        L = 1/B · Σ_b 1/|K| · Σ_{k∈K} ‖ P_k(new_b²) − P_k(old_b²) ‖₂
        P_k(x)_{d,i,j} = 1/k² · Σ_{i−k/2 ≤ m < i+k/2} Σ_{j−k/2 ≤ n < j+k/2} x_{d,m,n},   0 ≤ i ≤ h,  0 ≤ j ≤ w

    This is average pooling with stride 1 and zero padding of k/2, in which padding counts; windows may be larger than
    the map. Sides k are even, so there are (h + 1)·(w + 1) windows. The mean is over the images of all processes.

    Shapes: new, old (B, D, h, w). Gradients flow to both.
    """
    difference = _squared_difference(new, old)
    norms = [_norm(_window_means(difference, side)) for side in windows]
    return _mean(torch.stack(norms).mean(0))


def channel_pooled(new: Tensor, old: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    r"""Distance of features, average-pooled over neighbouring channels at every pixel (RCIL).

        L = 1/B · Σ_b ‖ Q(new_b²) − Q(old_b²) ‖₂,   Q(x)_{d,i,j} = 1/n · Σ_{|c−d| ≤ (n−1)/2} x_{c,i,j}

    Channels are padded with zeros, which count; n is odd. The mean is over the images of all processes.

    Shapes: new, old (B, D, h, w). Gradients flow to both.
    """
    cube = _squared_difference(new, old).flatten(2)[:, None]
    pooled = F.avg_pool2d(cube, (neighbours, 1), stride=1, padding=(neighbours // 2, 0))
    return _mean(_norm(pooled))


def _squared_difference(new: Tensor, old: Tensor) -> Tensor:
    """Return new² − old²; pooling is linear, so the difference is pooled once, which is also more precise."""
    if new.shape != old.shape:
        raise ValueError(f"expected features of the same shape, found {tuple(new.shape)} and {tuple(old.shape)}")
    return at_least_float32(new).square() - at_least_float32(old).square()


def _window_means(values: Tensor, side: int) -> Tensor:
    """Return the means over windows (B, D, h + 1, w + 1) as two matrix products.

    On a GPU this takes a third of the time of average pooling, and less memory.
    """
    height, width = values.shape[-2:]
    return _window_matrix(values, height, side) @ (values @ _window_matrix(values, width, side).mT)


def _window_matrix(like: Tensor, length: int, side: int) -> Tensor:
    """Return the matrix (n + 1, n) that maps a line of n pixels to the means over its windows."""
    index = torch.arange(length, device=like.device)
    first = torch.arange(length + 1, device=like.device)[:, None] - side // 2
    return ((index >= first) & (index < first + side)).to(like.dtype) / side


def _norm(values: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values.flatten(1), dim=1)
    return norm


def _mean(distance: Tensor) -> Tensor:
    return global_mean(distance.sum(), len(distance))
