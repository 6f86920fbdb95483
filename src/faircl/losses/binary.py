"""Binary cross-entropy of upsampled logits, independent for every class: the loss of iCaRL, LwF-MC and SSUL."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from faircl import kernels
from faircl.labels import IGNORE
from faircl.losses.cross_entropy import focal_factor, target_logit, valid_mean, weighted
from faircl.losses.upsampled_per_image import upsampled_per_image


def upsampled_binary_cross_entropy(
    logits: Tensor, target: Tensor, *, class_weight: Tensor | None = None, focal: float = 0.0
) -> Tensor:
    r"""Sum over classes of the binary cross-entropy of bilinearly upsampled logits z, mean over the N valid pixels.

        L = 1/N · Σ_i w_{y_i} · ( Σ_c log(1 + exp z_{i,c}) − z_{i,y_i} ),

    which equals 1/N · Σ_i w_{y_i} · Σ_c BCE(σ(z_{i,c}), [c = y_i]). With γ = ``focal`` > 0 the BCE of every class is
    multiplied by (1 − p)^γ, p the probability of the correct answer.

    Shapes: logits (B, C, h, w); target (B, H, W) int64 with IGNORE; class_weight (C,).
    """
    return valid_mean(pixel_binary_cross_entropy(logits, target, class_weight=class_weight, focal=focal), target)


def pixel_binary_cross_entropy(
    logits: Tensor, target: Tensor, *, class_weight: Tensor | None = None, focal: float = 0.0
) -> Tensor:
    """Return the summands of ``upsampled_binary_cross_entropy`` (B, H, W), zero where the target is IGNORE.

    The Triton kernels do not store upsampled logits. Without kernels, or with ``focal``, the upsampled logits of one
    image are stored at a time.
    """
    if focal == 0 and kernels.usable(logits):
        from faircl.kernels.upsampled_logits import pixel_scores

        total, target_scores = pixel_scores(logits, target, sigmoid=True)
        loss = total - target_scores
    else:
        loss = upsampled_per_image(
            partial(_focal_binary_cross_entropy, gamma=focal) if focal > 0 else _binary_cross_entropy, logits, target
        )
    return weighted(loss.where(target != IGNORE, 0.0), target, class_weight, None)


def _binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.softplus(logits).sum(1) - target_logit(logits, target)


def _focal_binary_cross_entropy(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
    index = target.where(target != IGNORE, 0)[:, None]
    # BCE is softplus(−z) for the target class and softplus(z) for the others.
    loss = F.softplus(logits.scatter(1, index, -logits.gather(1, index)))
    return (loss * focal_factor(loss, gamma)).sum(1)
