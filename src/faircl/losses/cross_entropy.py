"""Cross-entropy of logits, upsampled to the size of the labels; all methods use it.

On a GPU ``pixel_scores`` computes it by the kernels of ``faircl.kernels.upsampled_logits``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.distributed import global_mean
from faircl.labels import BACKGROUND, IGNORE
from faircl.losses.pixel_scores import pixel_scores
from faircl.precision import at_least_float32
from faircl.upsampling import upsampled

MAX_CPU_LOGITS = 2**26
"""Largest number of upsampled logits (256 MiB in float32) that a CPU computes at once, instead of image by image."""
_MIN_FOCAL_BASE = 1e-8
"""Lower bound of 1 − p in the focal factor: at 0 the gradient of (1 − p)^γ is infinite for γ < 1."""


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

    where s_i = z_{i,y_i}, u is ``pixel_weight``, w is ``class_weight`` and γ is ``focal``. With ``grouped`` = k > 0 the
    target background stands for any of the first k channels (MiB's unbiased cross-entropy, Eqn 6 of MiB):
    s_i = log Σ_{c<k} exp z_{i,c} where y_i = 0.

    The loss is not divided by the sum of the weights: callers normalise weights over the data set, not the batch.

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
    """Return the terms of ``upsampled_cross_entropy`` before averaging, (B, H, W); zero where the target is IGNORE."""
    loss = _nll(logits, target, offset, grouped)
    return weighted(loss * focal_factor(loss, focal) if focal > 0 else loss, target, class_weight, pixel_weight)


def _nll(logits: Tensor, target: Tensor, offset: Tensor | None, grouped: int) -> Tensor:
    """Return the negative log-likelihood of the target of every pixel (B, H, W), zero where it is IGNORE."""
    if not is_small(logits, target) and logits.shape[-2:] != target.shape[-2:]:
        lse, target_score = pixel_scores(logits, target, offset, grouped)
        return (lse - target_score).where(target != IGNORE, 0.0)
    if offset is not None:
        # Added before upsampling: bilinear interpolation keeps a constant per channel, and the map is smaller.
        logits = at_least_float32(logits) + offset[:, None, None]
    logits = upsampled(logits, target.shape[-2:])
    if grouped > 0:
        target_score = target_logit(logits, target, grouped)  # first: saves one tensor in the backward pass
        return (logits.logsumexp(1) - target_score).where(target != IGNORE, 0.0)
    return F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none")


def is_small(logits: Tensor, target: Tensor) -> bool:
    """Whether the upsampled logits of the batch are computed at once: on a CPU, up to MAX_CPU_LOGITS."""
    return logits.device.type == "cpu" and target.numel() * logits.shape[1] <= MAX_CPU_LOGITS


def weighted(loss: Tensor, target: Tensor, class_weight: Tensor | None, pixel_weight: Tensor | None) -> Tensor:
    """Multiply a loss (B, H, W) by the weight of the target class (C,) and by the weight of the pixel (B, H, W)."""
    if class_weight is not None:
        loss = loss * class_weight[target.where(target != IGNORE, 0)]
    return loss if pixel_weight is None else loss * pixel_weight


def target_logit(logits: Tensor, target: Tensor, grouped: int = 0) -> Tensor:
    """Return the score s of ``upsampled_cross_entropy`` of every pixel (B, H, W), z_0 where the target is IGNORE."""
    target_score = logits.gather(1, target.where(target != IGNORE, 0)[:, None])[:, 0]
    return target_score.where(target != BACKGROUND, logits[:, :grouped].logsumexp(1)) if grouped > 0 else target_score


def focal_factor(loss: Tensor, gamma: float) -> Tensor:
    """Return (1 − p)^γ for a negative log-likelihood −log p."""
    return (-torch.expm1(-loss)).clamp_min(_MIN_FOCAL_BASE).pow(gamma)


def valid_mean(loss: Tensor, target: Tensor) -> Tensor:
    """Return the mean of a loss (B, H, W) over the pixels of all processes whose target is not IGNORE."""
    return global_mean(loss.sum(), (target != IGNORE).sum())
