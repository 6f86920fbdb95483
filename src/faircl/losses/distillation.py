"""Knowledge distillation: predictions of old classes stay close to those of the old network.

All losses are computed at network stride, without upsampling. K is the number of old classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.distributed import global_mean
from faircl.precision import at_least_float32


def distillation(new: Tensor, old: Tensor, valid: Tensor) -> Tensor:
    r"""Cross-entropy of the old network's distribution over old classes (LwF).

        L = − 1/N · Σ_i 1/K · Σ_{c<K} softmax(old)_{i,c} · log softmax(new restricted to K channels)_{i,c}

    The factor 1/K is that of the code of MiB and PLOP, and published loss weights assume it.

    Shapes: new (B, C, h, w) with C ≥ K; old (B, K, h, w); valid (B, h, w) bool, which marks the N pixels.
    """
    old_classes = old.shape[1]
    new, old = at_least_float32(new)[:, :old_classes], at_least_float32(old)
    return _mean(-(old.softmax(1) * new.log_softmax(1)).mean(1), valid)


def unbiased_distillation(new: Tensor, old: Tensor, valid: Tensor) -> Tensor:
    r"""Distillation in which the old background includes all new classes (MiB, Eqn 8-9).

    The old network predicts background for pixels of new classes, so its background is compared with the sum of
    background and new classes of the new network:

        L = − 1/N · Σ_i 1/K · Σ_{c<K} q_{i,c} · log p̂_{i,c},   q = softmax(old),   p = softmax(new),
        p̂_0 = p_0 + Σ_{c≥K} p_c,   p̂_c = p_c for 0 < c < K.

    Shapes as in ``distillation``; channel 0 is the background.
    """
    old_classes = old.shape[1]
    new, old = at_least_float32(new), at_least_float32(old)
    log_p = new - new.logsumexp(1, keepdim=True)
    background = torch.cat([log_p[:, :1], log_p[:, old_classes:]], dim=1).logsumexp(1, keepdim=True)
    log_p_old = torch.cat([background, log_p[:, 1:old_classes]], dim=1)
    return _mean(-(old.softmax(1) * log_p_old).mean(1), valid)


def binary_distillation(new: Tensor, old: Tensor, valid: Tensor) -> Tensor:
    r"""Binary cross-entropy of every old class against the old network's sigmoid (LwF-MC, iCaRL).

        L = 1/N · Σ_i 1/K · Σ_{c<K} BCE(σ(new)_{i,c}, σ(old)_{i,c})

    Shapes as in ``distillation``.
    """
    new, old = at_least_float32(new)[:, : old.shape[1]], at_least_float32(old)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(new, old.sigmoid(), reduction="none")
    return _mean(loss.mean(1), valid)


def feature_distance(new: Tensor, old: Tensor) -> Tensor:
    """Mean squared difference of two feature maps (B, D, h, w) (ILT)."""
    difference = (at_least_float32(new) - at_least_float32(old)).square()
    return global_mean(difference.sum(), difference.numel())


def _mean(loss: Tensor, valid: Tensor) -> Tensor:
    return global_mean(loss.where(valid, 0.0).sum(), valid.sum())
