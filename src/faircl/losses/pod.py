"""Local POD: what features say of every row and column stays close to what the old network's said (PLOP)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from faircl.distributed import global_mean
from faircl.labels import BACKGROUND
from faircl.precision import at_least_float32

SCALES = (1, 2, 4)
"""Tiles per side that PLOP compares at: the whole map, quarters and sixteenths."""


def local_pod(new: Tensor, old: Tensor, scales: Sequence[int] = SCALES) -> Tensor:
    r"""Distance of row and column means in tiles of several sizes (PLOP).

        L = 1/B · Σ_b ‖ Φ(new_b) − Φ(old_b) ‖₂

    where Φ squares a map and, for every scale s, cuts it into s×s tiles and keeps the mean of every row and of every
    column of every tile, all in one vector. With R the s bands of rows and C the s bands of columns,

        Φ_s(x) = [ mean_{j ∈ J} x²_{d,i,j} for all d, i and J ∈ C;  mean_{i ∈ I} x²_{d,i,j} for all d, j and I ∈ R ].

    The rows of all tiles are all rows of the map, each cut into s bands; so no tile is ever cut out. Pixel k of a side
    of n lies in band ⌊k·s/n⌋: bands of n/s where s divides n, else their lengths differ by one. A side shorter than s
    has n bands of one pixel.

    Shapes: new, old (B, D, h, w); gradient flows to both. The mean is over the images of all processes.
    """
    if new.shape != old.shape:
        raise ValueError(f"features of one shape are compared, found {tuple(new.shape)} and {tuple(old.shape)}")
    # Means are linear: those of the difference are the difference of means, at half the work and without cancellation.
    difference = at_least_float32(new).square() - at_least_float32(old).square()
    rows = difference @ _band_means(difference, difference.shape[-1], scales)
    columns = difference.mT @ _band_means(difference, difference.shape[-2], scales)
    distance = torch.linalg.vector_norm(torch.cat([rows.flatten(1), columns.flatten(1)], dim=1), dim=1)
    return global_mean(distance.sum(), len(distance))


def like_old_logits(new: Tensor, known: int, background: bool) -> Tensor:
    """Logits (B, C, h, w) as a network of K = ``known`` channels would give them: (B, K, h, w).

    To the old network new classes were background, so their logits are added to the background's:

        z'_0 = z_0 + Σ_{c≥K} z_c,   z'_c = z_c for 0 < c < K.

    Without a background class new channels are left out.
    """
    if not background or new.shape[1] == known:
        return new[:, :known]
    extra = new[:, known:].sum(1, keepdim=True)
    return torch.cat([new[:, BACKGROUND : BACKGROUND + 1] + extra, new[:, 1:known]], dim=1)


def _band_means(like: Tensor, side: int, scales: Sequence[int]) -> Tensor:
    """Return the matrix (n, bands of all scales) that takes a line of n pixels to its bands' means."""
    place = torch.arange(side, device=like.device)
    parts = []
    for scale in scales:
        bands = min(scale, side)
        member = ((place * bands // side)[:, None] == place[:bands]).to(like.dtype)
        parts.append(member / member.sum(0))
    return torch.cat(parts, dim=1)
