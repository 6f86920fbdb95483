"""Prototype replay: cross-entropy of remembered features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def replay_loss(logits: Tensor, valid: Tensor, prior: Tensor) -> Tensor:
    r"""Cross-entropy of the classifier on features of known classes, every class weighted by a prior.

        L = Σ_c π_c · mean_{i of c} ( log Σ_k exp z_{i,k} − z_{i,c} ) / Σ_c π_c

    over the classes that have a valid feature; zero if none has.

    Shapes: logits (K, n, C), those of features of class c in row c; valid (K, n) bool; prior π (K,).
    """
    classes = torch.arange(len(logits), device=logits.device)[:, None].expand(valid.shape)
    loss = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), reduction="none").view(valid.shape)
    count = valid.sum(1)
    mean = loss.where(valid, 0.0).sum(1) / count.clamp_min(1)
    weight = prior.to(mean) * (count > 0)
    return (weight * mean).sum() / weight.sum().clamp_min(torch.finfo(mean.dtype).tiny)
