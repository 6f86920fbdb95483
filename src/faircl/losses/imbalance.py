"""Losses for rare classes, which any method may train with: class-balanced weights, Seesaw, tilted cross-entropy.

Weights by inverse frequency and offsets by the class prior are in ``fairness``; the focal factor is in
``cross_entropy``.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from faircl.distributed import global_sum, global_sum_with_grad
from faircl.labels import BACKGROUND, IGNORE
from faircl.losses.by_image import by_image
from faircl.losses.counting import count_labels
from faircl.losses.cross_entropy import own_score


def effective_number_weights(count: Tensor, beta: float) -> Tensor:
    """Return w_c ∝ (1 − β) / (1 − β^{n_c}), mean one over classes (class-balanced loss, Cui et al., CVPR 2019).

    n_c counts samples of class c; of pixels there are so many that β^n would be zero for every class and all weights
    equal, so images are counted. Shapes: count (K,) to (K,); a class without an image counts as if it had one.
    """
    weight = (1 - beta) / (1 - beta ** count.double().clamp_min(1))
    return weight * len(weight) / weight.sum()


def pixel_seesaw(
    logits: Tensor,
    target: Tensor,
    log_count: Tensor,
    mitigation: float = 0.8,
    compensation: float = 2.0,
    grouped: int = 0,
) -> Tensor:
    r"""Seesaw cross-entropy of every pixel (B, H, W), zero where the target is IGNORE (Wang et al., CVPR 2021).

        L_i = log Σ_c S_{y,c} · exp z_{i,c} − z_{i,y},   S_{y,y} = 1,   S_{y,c} = M_{y,c} · C_{i,c},
        M_{y,c} = min(1, N_c / N_y)^p,   C_{i,c} = max(1, σ_{i,c} / σ_{i,y})^q,

    σ the softmax of z without gradient: a rare class is punished less by the pixels of a frequent one, unless it is
    mistaken for it. Targets that stand for ``grouped`` channels do so as in ``upsampled_cross_entropy``, and punish
    none of them. Logits are upsampled image by image, and again in backward.

    Shapes: logits (B, C, h, w); target (B, H, W) int64; log_count (C,), log N_c up to a constant.
    """
    score = partial(_seesaw, log_count=log_count, mitigation=mitigation, compensation=compensation, grouped=grouped)
    return by_image(score, logits, target)


def _seesaw(
    logits: Tensor, target: Tensor, log_count: Tensor, mitigation: float, compensation: float, grouped: int
) -> Tensor:
    """Return what ``pixel_seesaw`` does of logits (B, C, H, W) that have the size of the target."""
    label = target.where(target != IGNORE, 0)
    own = own_score(logits, target, grouped)
    with torch.no_grad():
        ahead = logits - own[:, None]  # log σ_c − log σ_y
        rarer = log_count[None, :, None, None] - log_count[label][:, None]
        factor = mitigation * rarer.clamp_max(0) + compensation * ahead.clamp_min(0)
        factor.scatter_(1, label[:, None], 0.0)
        if grouped > 0:
            factor[:, :grouped].masked_fill_((target == BACKGROUND)[:, None], 0.0)
    return ((logits + factor).logsumexp(1) - own).where(target != IGNORE, 0.0)


def tilted_mean(loss: Tensor, target: Tensor, tilt: float, classes: int) -> Tensor:
    r"""Tilted mean over classes of the mean loss of their pixels (tilted cross-entropy, Szabo et al., CVPRW 2021).

        L = 1/t · log( 1/A · Σ_{c present} exp(t · L_c) ),   L_c = mean of the loss over the pixels of c,

    A the number of classes that the batch shows, over all processes: from the plain mean over classes (t → 0) to the
    worst class (t → ∞). A batch without a valid pixel gives zero.
    Shapes: loss (B, H, W), zero where the target (B, H, W) is IGNORE.
    """
    label = target.where(target != IGNORE, classes).flatten()  # one row more, for what does not count
    # In double precision: float32 cannot add up the pixels of a batch, nor tell small tilts from none.
    total = loss.new_zeros(classes + 1, dtype=torch.float64).index_add(0, label, loss.flatten().double())[:-1]
    count = global_sum(count_labels(label, classes + 1)[:-1])
    mean = global_sum_with_grad(total) / count.clamp_min(1)
    present = (count > 0).double()
    number = present.sum().clamp_min(1)
    middle = (mean * present).sum() / number
    # exp(t·(L_c − middle)) − 1 keeps what a small tilt adds; a class that is far above is kept from overflowing.
    top = (tilt * (mean - middle).masked_fill(count == 0, -math.inf)).max().clamp_min(0).detach()
    excess = (torch.expm1(tilt * (mean - middle) - top) * present).sum() / number
    tilted = middle + (top + torch.log1p(excess)) / tilt
    return tilted.to(loss.dtype)
