"""Binary cross-entropy of upsampled logits: every class for itself, as iCaRL, LwF-MC and SSUL train."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from faircl import kernels
from faircl.labels import IGNORE
from faircl.losses.by_image import by_image
from faircl.losses.cross_entropy import focal_factor, own_score, valid_mean, weighted


def upsampled_binary_cross_entropy(
    logits: Tensor, target: Tensor, *, class_weight: Tensor | None = None, focal: float = 0.0
) -> Tensor:
    r"""Sum over classes of the binary cross-entropy of bilinearly upsampled logits z, mean over the N valid pixels.

        L = 1/N · Σ_i w_{y_i} · ( Σ_c log(1 + exp z_{i,c}) − z_{i,y_i} ),

    which is Σ_c BCE(σ(z_{i,c}), [c = y_i]) with its two cases put together. With γ = ``focal`` > 0 the BCE of every
    class is multiplied by (1 − p)^γ, p being the probability given to the right answer.
    Shapes: logits (B, C, h, w); target (B, H, W) int64 with IGNORE; class_weight (C,).
    """
    return valid_mean(pixel_binary_cross_entropy(logits, target, class_weight=class_weight, focal=focal), target)


def pixel_binary_cross_entropy(
    logits: Tensor, target: Tensor, *, class_weight: Tensor | None = None, focal: float = 0.0
) -> Tensor:
    """Return the summands of ``upsampled_binary_cross_entropy`` (B, H, W), zero where the target is IGNORE.

    Kernels make no upsampled logits at all; elsewhere, and with ``focal``, there are those of one image at a time.
    """
    if focal == 0 and kernels.usable(logits):
        from faircl.kernels.upsampled_logits import pixel_scores

        total, own = pixel_scores(logits, target, sigmoid=True)
        loss = total - own
    else:
        loss = by_image(partial(_focal, gamma=focal) if focal > 0 else _plain, logits, target)
    return weighted(loss.where(target != IGNORE, 0.0), target, class_weight, None)


def _plain(logits: Tensor, target: Tensor) -> Tensor:
    return F.softplus(logits).sum(1) - own_score(logits, target)


def _focal(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
    index = target.where(target != IGNORE, 0)[:, None]
    # BCE is softplus(z), or softplus(−z) for the class that is there.
    loss = F.softplus(logits.scatter(1, index, -logits.gather(1, index)))
    return (loss * focal_factor(loss, gamma)).sum(1)
