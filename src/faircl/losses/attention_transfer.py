"""Attention transfer: class-wise mean attention stays close to that of the old network (SATS)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from faircl.distributed import global_mean
from faircl.precision import at_least_float32

Size = tuple[int, int]


def attention_transfer(new: Tensor, old: Tensor, labels: Tensor, first: int, classes: int) -> Tensor:
    r"""Distance of class-wise mean attention rows (SATS).

    With P_{b,c} the queries of image b whose label is c, and C_b the labels in [first, classes) that image b shows,

        a_{b,h,c} = 1/|P_{b,c}| · Σ_{q ∈ P_{b,c}} A_{b,h,q},
        L = mean over images b with a class, over c ∈ C_b and over heads h of ‖ a_{b,h,c}(new) − a_{b,h,c}(old) ‖₂.

    All images with a class have the same weight; images without one are left out. The mean is over the images of all
    processes. Labels outside [first, classes), such as IGNORE, belong to no class.

    Shapes: new, old (B, heads, Q, keys); labels (B, Q) int64. Gradients flow to both attentions.
    """
    if new.shape != old.shape:
        raise ValueError(f"expected attentions of the same shape, found {tuple(new.shape)} and {tuple(old.shape)}")
    if labels.shape != (new.shape[0], new.shape[2]):
        raise ValueError(
            f"expected one label per query, found labels {tuple(labels.shape)} for attentions {tuple(new.shape)}"
        )
    # Means are linear: the mean of the difference equals the difference of means, at half the cost.
    difference = at_least_float32(new) - at_least_float32(old)
    channels = torch.arange(first, classes, device=labels.device)
    membership = (labels[:, None] == channels[:, None]).to(difference.dtype)
    pixels = membership.sum(2)
    rows = (membership / pixels.clamp_min(1)[..., None])[:, None] @ difference
    # The rows of an absent class are zero, and so are norm and gradient.
    distance = torch.linalg.vector_norm(rows, dim=-1).mean(1)
    present = (pixels > 0).sum(1)
    return global_mean((distance.sum(1) / present.clamp_min(1)).sum(), (present > 0).sum())


def stage_ends(attentions: Sequence[Tensor], sizes: Sequence[Size]) -> list[tuple[int, Size]]:
    """Return the index of the last block of every stage, with the grid (h, w) of its queries.

    ``attentions`` holds the attention of every block. A stage ends where the number of queries changes; the blocks of a
    vision transformer, all of one stride, are one stage. ``sizes`` are those of the network's feature maps, one of
    which must have as many pixels as there are queries; queries are its pixels in row-major order.
    """
    queries = [attention.shape[-2] for attention in attentions]
    grids = {height * width: (height, width) for height, width in sizes}
    unmatched = sorted(set(queries) - set(grids))
    if unmatched:
        maps = ", ".join(f"{height}x{width}" for height, width in grids.values())
        raise ValueError(f"{unmatched[0]} queries are the pixels of none of its feature maps ({maps})")
    next_queries = [*queries[1:], 0]
    return [
        (block, grids[count])
        for block, (count, next_count) in enumerate(zip(queries, next_queries, strict=True))
        if count != next_count
    ]
