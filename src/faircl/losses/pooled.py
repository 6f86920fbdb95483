"""Pooled cubes: means of features over windows of pixels and over neighbouring channels stay as they were (RCIL)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.distributed import global_mean
from faircl.precision import at_least_float32

WINDOWS = (4, 8, 12, 16, 20, 24)
"""Sides of the windows that RCIL pools over."""
NEIGHBOURS = 3
"""Channels that RCIL pools over."""


def spatial_pooled(new: Tensor, old: Tensor, windows: Sequence[int] = WINDOWS) -> Tensor:
    r"""Distance of means over square windows, at every place of the map (RCIL).

        L = 1/B · Σ_b 1/|K| · Σ_{k∈K} ‖ P_k(new_b²) − P_k(old_b²) ‖₂
        P_k(x)_{d,i,j} = 1/k² · Σ_{i−k/2 ≤ m < i+k/2} Σ_{j−k/2 ≤ n < j+k/2} x_{d,m,n},   0 ≤ i ≤ h,  0 ≤ j ≤ w

    Beyond its border a map is zero, and windows always count k² pixels: so a window larger than the map is one that
    sees most of it from everywhere, and no map is too small. Sides k are even; there are (h + 1)·(w + 1) windows.

    Shapes: new, old (B, D, h, w); gradient flows to both. The mean is over the images of all processes.
    """
    difference = _of_squares(new, old)
    norms = [_norm(_window_means(difference, side)) for side in windows]
    return _mean(torch.stack(norms).mean(0))


def channel_pooled(new: Tensor, old: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    r"""Distance of means over neighbouring channels, at every pixel (RCIL).

        L = 1/B · Σ_b ‖ Q(new_b²) − Q(old_b²) ‖₂,   Q(x)_{d,i,j} = 1/n · Σ_{|c−d| ≤ (n−1)/2} x_{c,i,j}

    Before the first channel and after the last one there are zeros, which count; n is odd.

    Shapes: new, old (B, D, h, w); gradient flows to both. The mean is over the images of all processes.
    """
    cube = _of_squares(new, old).flatten(2)[:, None]
    pooled = F.avg_pool2d(cube, (neighbours, 1), stride=1, padding=(neighbours // 2, 0))
    return _mean(_norm(pooled))


def _of_squares(new: Tensor, old: Tensor) -> Tensor:
    """Return new² − old²: means are linear, so one pooling does for both, without cancellation."""
    if new.shape != old.shape:
        raise ValueError(f"features of one shape are compared, found {tuple(new.shape)} and {tuple(old.shape)}")
    return at_least_float32(new).square() - at_least_float32(old).square()


def _window_means(values: Tensor, side: int) -> Tensor:
    """Mean over windows (B, D, h + 1, w + 1), over rows and then over columns.

    As products with a matrix of windows this takes a third of the time and less memory than pooling on a GPU.
    """
    height, width = values.shape[-2:]
    return _windows(values, height, side) @ (values @ _windows(values, width, side).mT)


def _windows(like: Tensor, length: int, side: int) -> Tensor:
    """Return the matrix (n + 1, n) that takes a line of n pixels to its windows' means."""
    place = torch.arange(length, device=like.device)
    first = torch.arange(length + 1, device=like.device)[:, None] - side // 2
    return ((place >= first) & (place < first + side)).to(like.dtype) / side


def _norm(values: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values.flatten(1), dim=1)
    return norm


def _mean(distance: Tensor) -> Tensor:
    return global_mean(distance.sum(), len(distance))
