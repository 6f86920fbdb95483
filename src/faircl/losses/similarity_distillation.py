"""Distillation weighted by class similarity: old classes similar to a pixel's new class have more weight (REMINDER)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.distributed import global_mean
from faircl.precision import at_least_float32

THRESHOLD_TOLERANCE = 1e-5
"""Relative tolerance of the threshold, so that rounding does not separate classes of equal similarity."""


def class_similarity(means: Tensor, prototypes: Tensor, ready: Tensor, delta: float) -> Tensor:
    r"""Similarity of every new class to every old one (REMINDER).

        r_{y,c} = exp cos(μ_y, p_c) / Σ_k exp cos(μ_y, p_k),   then r_{y,c} = 0 where r_{y,c} < δ / A

    over the A old classes that have a prototype; others have r = 0. δ = 1 keeps classes that are more similar than the
    average. The kept values are not normalised again. Cosines are within ±1, so r is between e⁻²/A and e²/A.

    Shapes: means μ (n, D) of the new classes; prototypes p (K, D); ready (K,) bool; result (n, K) without gradient.
    """
    means, prototypes = at_least_float32(means.detach()), at_least_float32(prototypes.detach())
    cosine = F.normalize(means, dim=1) @ F.normalize(prototypes.to(means), dim=1).T
    share = cosine.masked_fill(~ready, -torch.inf).softmax(1)
    kept = ready & (share >= delta * (1 - THRESHOLD_TOLERANCE) / ready.sum().clamp_min(1))
    return share.where(kept, 0.0)


def similarity_distillation(
    new: Tensor, old: Tensor, labels: Tensor, similarity: Tensor, temperature: float = 3.0
) -> Tensor:
    r"""Distillation on pixels of new classes, with old classes weighted by similarity (CSW-KD of REMINDER).

        L = − T² / N · Σ_i Σ_{c<K} r_{y_i,c} · q_{i,c} · log p_{i,c},
        q = softmax(old / T),   p = softmax(new restricted to K channels / T)

    over the N pixels with K ≤ y_i < K + n; zero without such pixels. Both softmaxes are over all K old classes.

    Shapes: new (B, C, h, w) with C ≥ K; old (B, K, h, w); labels (B, h, w) int64, at network stride; similarity r
    (n, K).
    """
    old_classes = old.shape[1]
    if similarity.shape[1] != old_classes:
        raise ValueError(
            f"expected one similarity per old class, found {similarity.shape[1]} for {old_classes} channels"
        )
    valid = (labels >= old_classes) & (labels < old_classes + len(similarity))
    weight = similarity[(labels - old_classes).where(valid, 0)].permute(0, 3, 1, 2)
    log_p = (at_least_float32(new)[:, :old_classes] / temperature).log_softmax(1)
    loss = -(weight * (at_least_float32(old) / temperature).softmax(1) * log_p).sum(1)
    return temperature**2 * global_mean(loss.where(valid, 0.0).sum(), valid.sum())
