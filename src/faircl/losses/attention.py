"""Attention transfer: where the pixels of a class look stays close to where the old network's looked (SATS)."""

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

    Every image counts alike, however many classes it shows; one without a class does not count. The mean is over the
    images of all processes. Labels outside [first, classes), IGNORE among them, belong to no class.
    Shapes: new, old (B, heads, Q, keys); labels (B, Q) int64; gradient flows to both attentions.
    """
    if new.shape != old.shape:
        raise ValueError(f"attentions of one shape are compared, found {tuple(new.shape)} and {tuple(old.shape)}")
    if labels.shape != (new.shape[0], new.shape[2]):
        raise ValueError(f"one label per query is needed, found {tuple(labels.shape)} for {tuple(new.shape)}")
    # Means are linear: the mean of the difference is the difference of means, at half the work.
    difference = at_least_float32(new) - at_least_float32(old)
    channels = torch.arange(first, classes, device=labels.device)
    member = (labels[:, None] == channels[:, None]).to(difference.dtype)
    count = member.sum(2)
    rows = (member / count.clamp_min(1)[..., None])[:, None] @ difference
    # An absent class has rows of zeros: norm and gradient are zero.
    distance = torch.linalg.vector_norm(rows, dim=-1).mean(1)
    shown = (count > 0).sum(1)
    return global_mean((distance.sum(1) / shown.clamp_min(1)).sum(), (shown > 0).sum())


def stage_ends(attentions: Sequence[Tensor], sizes: Sequence[Size]) -> list[tuple[int, Size]]:
    """Return the last block of every stage, with the grid (h, w) of its queries.

    A network lists its blocks without their stages. Stages differ in their pixels, so that one ends where the number
    of queries changes; blocks of one stride throughout, as in a vision transformer, are one stage. ``sizes`` are those
    of the network's feature maps: queries are pixels where one of them has as many, in rows from the top.
    """
    queries = [attention.shape[-2] for attention in attentions]
    grids = {height * width: (height, width) for height, width in sizes}
    strange = sorted(set(queries) - set(grids))
    if strange:
        maps = ", ".join(f"{height}x{width}" for height, width in grids.values())
        raise ValueError(f"{strange[0]} queries are the pixels of none of its feature maps ({maps})")
    following = [*queries[1:], 0]
    return [(k, grids[now]) for k, (now, then) in enumerate(zip(queries, following, strict=True)) if now != then]
