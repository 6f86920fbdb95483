"""Labels and features at the resolution of feature maps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.labels import IGNORE
from faircl.loading.batch import Batch


def to_stride(labels: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Take labels (B, H, W) at the centres of a coarser grid (B, h, w): nearest neighbour."""
    if labels.shape[-2:] == tuple(size):
        return labels
    (high, wide), (rows, columns) = labels.shape[-2:], size
    if high % rows == wide % columns == 0:  # a view reads only the labels that are taken
        along, across = high // rows, wide // columns
        return labels[..., along // 2 :: along, across // 2 :: across]
    # Labels up to 65535 are exact in float32; interpolation of integers does not exist.
    return F.interpolate(labels[:, None].float(), tuple(size), mode="nearest-exact")[:, 0].long()


def valid_pixels(batch: Batch, size: tuple[int, int] | torch.Size) -> Tensor:
    """Mark the pixels of a coarser grid (B, h, w) bool whose label is not IGNORE."""
    return to_stride(batch.labels, size) != IGNORE


def flat_features(features: Tensor) -> Tensor:
    """(B, D, h, w) to (B·h·w, D)."""
    return features.permute(0, 2, 3, 1).flatten(0, 2)
