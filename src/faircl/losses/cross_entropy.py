"""Cross-entropy of upsampled logits: the one place where logits meet full-resolution labels in a loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.distributed import global_mean
from faircl.labels import BACKGROUND, IGNORE
from faircl.losses.pixel_scores import pixel_scores
from faircl.precision import at_least_float32
from faircl.upsampling import upsampled

LARGE = 2**26
"""Upsampled logits (256 MiB) up to which a CPU computes those of a batch at once: about the same time, more memory."""
_LEAST = 1e-8
"""Smallest 1 − p of the focal factor: below it a power under one would have an endless slope."""


def upsampled_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    class_weight: Tensor | None = None,
    offset: Tensor | None = None,
    pixel_weight: Tensor | None = None,
    grouped: int = 0,
    focal: float = 0.0,
) -> Tensor:
    r"""Weighted cross-entropy of bilinearly upsampled logits, averaged over valid pixels.

    With z = up(logits) + offset and N the number of pixels that are not IGNORE (over all processes),

        L = 1/N · Σ_i  u_i · w_{y_i} · (1 − p_i)^γ · ( log Σ_c exp z_{i,c} − s_i ),   p_i = exp(s_i) / Σ_c exp z_{i,c},

    where s_i = z_{i,y_i} and γ = ``focal``. With ``grouped`` = k > 0 the target background stands for the first k
    channels together (MiB's unbiased cross-entropy): s_i = log Σ_{c<k} exp z_{i,c} where y_i = 0.
    Weights are not divided out again: a caller that wants a mean weight of one normalises them over the data, not
    over the batch.

    Shapes: logits (B, C, h, w); target (B, H, W) int64; class_weight, offset (C,); pixel_weight (B, H, W).
    """
    loss = pixel_cross_entropy(
        logits,
        target,
        class_weight=class_weight,
        offset=offset,
        pixel_weight=pixel_weight,
        grouped=grouped,
        focal=focal,
    )
    return valid_mean(loss, target)


def pixel_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    class_weight: Tensor | None = None,
    offset: Tensor | None = None,
    pixel_weight: Tensor | None = None,
    grouped: int = 0,
    focal: float = 0.0,
) -> Tensor:
    """Return the summands of ``upsampled_cross_entropy`` (B, H, W), zero where the target is IGNORE."""
    loss = _nll(logits, target, offset, grouped)
    return weighted(loss * focal_factor(loss, focal) if focal > 0 else loss, target, class_weight, pixel_weight)


def _nll(logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int) -> Tensor:
    """Negative log-likelihood of every pixel's target (B, H, W), zero where it is IGNORE."""
    if not is_small(logits, target) and logits.shape[-2:] != target.shape[-2:]:
        lse, own = pixel_scores(logits, target, offset, grouped)
        return (lse - own).where(target != IGNORE, 0.0)
    if offset is not None:
        # A constant per channel commutes with bilinear interpolation; here it costs 1/stride² of the work.
        logits = at_least_float32(logits) + offset[:, None, None]
    logits = upsampled(logits, target.shape[-2:])
    if grouped > 0:
        own = own_score(logits, target, grouped)  # first: so one tensor less is alive when gradients come back
        return (logits.logsumexp(1) - own).where(target != IGNORE, 0.0)
    return F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none")


def is_small(logits: Tensor, target: Tensor) -> bool:
    """Whether upsampled logits are so few that a CPU is faster with all of them at once."""
    return logits.device.type == "cpu" and target.numel() * logits.shape[1] <= LARGE


def weighted(loss: Tensor, target: Tensor, class_weight: Tensor | None, pixel_weight: Tensor | None) -> Tensor:
    """Weigh pixels (B, H, W) by their class (C,) and one by one (B, H, W)."""
    if class_weight is not None:
        loss = loss * class_weight[target.where(target != IGNORE, 0)]
    return loss if pixel_weight is None else loss * pixel_weight


def own_score(logits: Tensor, target: Tensor, grouped: int = 0) -> Tensor:
    """Logit of every pixel's target (B, H, W), of channel 0 where it is IGNORE; see ``upsampled_cross_entropy``."""
    own = logits.gather(1, target.where(target != IGNORE, 0)[:, None])[:, 0]
    return own.where(target != BACKGROUND, logits[:, :grouped].logsumexp(1)) if grouped > 0 else own


def focal_factor(loss: Tensor, gamma: float) -> Tensor:
    """Return (1 − p)^γ of a negative log-likelihood −log p."""
    return (-torch.expm1(-loss)).clamp_min(_LEAST).pow(gamma)


def valid_mean(loss: Tensor, target: Tensor) -> Tensor:
    """Mean of a loss (B, H, W), zero where the target is IGNORE, over the other pixels of all processes."""
    return global_mean(loss.sum(), (target != IGNORE).sum())
