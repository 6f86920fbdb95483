"""L_seg with soft labels of unlabelled pixels."""

from __future__ import annotations

from torch import Tensor

from faircl.distributed import global_mean, global_sum
from faircl.labels import IGNORE
from faircl.loading.batch import SoftTargets
from faircl.losses.soft_cross_entropy import marked_pixels, soft_cross_entropy_sum


def with_soft_labels(
    labelled: Tensor,
    logits: Tensor,
    labels: Tensor,
    unlabelled: Tensor,
    soft: SoftTargets,
    weight: Tensor | None,
    strength: float,
) -> Tensor:
    r"""Add the cross-entropy with soft labels q at unlabelled pixels to ``labelled``, the mean at labelled ones.

        L_seg = 1/N · ( Σ_{i labelled} w_{y_i} · CE_i  +  λ_soft · Σ_{j unlabelled} u_j · H(q_j, p_j) )

    N counts both kinds of pixels, H(q, p) = −Σ_c q_c · log p_c, u_j = Σ_c q_jc · w_c and λ_soft is the ``strength``. q
    is 0 for new classes: the step labels all of their pixels. p is the softmax of the plain logits, without the offsets
    of ``adjust`` and ``protect``.

    Shapes: logits (B, K, h, w); labels (B, H, W) int64; unlabelled (B, H, W) bool; soft (B, h, w, n); weight (K,).
    """
    pixels = marked_pixels(unlabelled, (logits.shape[-2], logits.shape[-1]))
    total = soft_cross_entropy_sum(logits, soft.classes, soft.shares, pixels, weight)
    valid = (labels != IGNORE).sum()
    labelled_share = global_sum(valid - unlabelled.sum()) / global_sum(valid).clamp_min(1)
    return labelled * labelled_share + strength * global_mean(total, valid)
