"""Local POD: pooled rows and columns of features stay close to those of the old network (PLOP)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from faircl.distributed import global_mean
from faircl.labels import BACKGROUND
from faircl.precision import at_least_float32

SCALES = (1, 2, 4)
"""PLOP's numbers of tiles per side: the whole map, quarters and sixteenths."""


def local_pod(new: Tensor, old: Tensor, scales: Sequence[int] = SCALES) -> Tensor:
    r"""Distance of row and column means within tiles of several sizes (PLOP).

        L = 1/B · Σ_b ‖ Φ(new_b) − Φ(old_b) ‖₂

    where Φ(x) is the vector of the means of x² over every row and every column of every tile, for s×s tiles of all
    scales s. With R the s bands of rows and C the s bands of columns,

        Φ_s(x) = [ mean_{j ∈ J} x²_{d,i,j} for all d, i and J ∈ C;  mean_{i ∈ I} x²_{d,i,j} for all d, j and I ∈ R ].

    The rows of all tiles are the rows of the map cut into s bands, so tiles need not be cut out. Pixel k of a side of
    length n is in band ⌊k·s/n⌋: the lengths of bands differ by at most one. A side shorter than s has n bands of one
    pixel. The mean is over the images of all processes.

    Shapes: new, old (B, D, h, w). Gradients flow to both.
    """
    if new.shape != old.shape:
        raise ValueError(f"expected features of the same shape, found {tuple(new.shape)} and {tuple(old.shape)}")
    # Means are linear: the mean of the difference equals the difference of means, at half the cost and more precisely.
    difference = at_least_float32(new).square() - at_least_float32(old).square()
    rows = difference @ _band_means(difference, difference.shape[-1], scales)
    columns = difference.mT @ _band_means(difference, difference.shape[-2], scales)
    distance = torch.linalg.vector_norm(torch.cat([rows.flatten(1), columns.flatten(1)], dim=1), dim=1)
    return global_mean(distance.sum(), len(distance))


def like_old_logits(new: Tensor, old_classes: int, background: bool) -> Tensor:
    """Reduce logits (B, C, h, w) to the K = ``old_classes`` channels of the old network: (B, K, h, w).

    New classes were background for the old network, so their logits are added to that of the background:

        z'_0 = z_0 + Σ_{c≥K} z_c,   z'_c = z_c for 0 < c < K.

    Without a background class the new channels are dropped.
    """
    if not background or new.shape[1] == old_classes:
        return new[:, :old_classes]
    new_sum = new[:, old_classes:].sum(1, keepdim=True)
    return torch.cat([new[:, BACKGROUND : BACKGROUND + 1] + new_sum, new[:, 1:old_classes]], dim=1)


def _band_means(like: Tensor, side: int, scales: Sequence[int]) -> Tensor:
    """Return the matrix (n, bands of all scales) that maps a line of n pixels to the means of its bands."""
    index = torch.arange(side, device=like.device)
    matrices = []
    for scale in scales:
        bands = min(scale, side)
        membership = ((index * bands // side)[:, None] == index[:bands]).to(like.dtype)
        matrices.append(membership / membership.sum(0))
    return torch.cat(matrices, dim=1)
