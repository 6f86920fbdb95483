"""Cross-entropy of upsampled logits: the one place where logits meet full-resolution labels in a loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.data.sample import BACKGROUND, IGNORE
from faircl.distributed import global_mean


def upsampled_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    class_weight: Tensor | None = None,
    offset: Tensor | None = None,
    pixel_weight: Tensor | None = None,
    grouped: int = 0,
) -> Tensor:
    r"""Weighted cross-entropy of bilinearly upsampled logits, averaged over valid pixels.

    With z = up(logits) + offset and N the number of pixels that are not IGNORE (over all processes),

        L = 1/N · Σ_i  u_i · w_{y_i} · ( log Σ_c exp z_{i,c} − s_i ),

    where s_i = z_{i,y_i}. With ``grouped`` = k > 0 the target background stands for the first k channels together
    (MiB's unbiased cross-entropy): s_i = log Σ_{c<k} exp z_{i,c} where y_i = 0.
    Weights are not divided out again: a caller that wants a mean weight of one normalises them over the data, not
    over the batch.

    Shapes: logits (B, C, h, w); target (B, H, W) int64; class_weight, offset (C,); pixel_weight (B, H, W).
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if offset is not None:
        # A constant per channel commutes with bilinear interpolation; here it costs 1/stride² of the work.
        logits = logits + offset[:, None, None]
    if logits.shape[-2:] != target.shape[-2:]:
        logits = F.interpolate(logits, target.shape[-2:], mode="bilinear", align_corners=False)
    if grouped > 0:
        loss = _grouped_nll(logits, target, grouped)
    else:
        loss = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none")
    valid = target != IGNORE
    if class_weight is not None:
        loss = loss * class_weight[target.where(valid, 0)]
    if pixel_weight is not None:
        loss = loss * pixel_weight
    return global_mean(loss.sum(), valid.sum())


def _grouped_nll(logits: Tensor, target: Tensor, grouped: int) -> Tensor:
    valid = target != IGNORE
    own = logits.gather(1, target.where(valid, 0)[:, None])[:, 0]
    own = own.where(target != BACKGROUND, logits[:, :grouped].logsumexp(1))
    return (logits.logsumexp(1) - own).where(valid, 0.0)
