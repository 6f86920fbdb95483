"""Losses for rare classes, usable with any method: class-balanced weights, Seesaw, tilted cross-entropy.

Inverse-frequency weights and logit offsets by the class prior are in ``fairness``, the focal factor in
``cross_entropy``.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from faircl.distributed import global_sum, global_sum_with_grad
from faircl.labels import BACKGROUND, IGNORE
from faircl.losses.cross_entropy import target_logit
from faircl.losses.label_counts import count_labels
from faircl.losses.upsampled_per_image import upsampled_per_image


def effective_number_weights(count: Tensor, beta: float) -> Tensor:
    """Return w_c ∝ (1 − β) / (1 − β^{n_c}), mean one over classes (class-balanced loss, Cui et al., CVPR 2019).

    n_c is the number of images with class c, at least 1. With numbers of pixels β^{n_c} would be zero for every class
    and all weights equal.

    Shapes: count (K,) to (K,).
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

    with N_c the count of class c and σ the softmax of z without gradient. M reduces the penalty that pixels
    of a frequent class put on a rare class; C restores it where the rare class has the higher score. ``grouped`` is
    that of ``upsampled_cross_entropy``; S = 1 for all channels of the group. Logits are upsampled image by image, and
    again in the backward pass.

    Shapes: logits (B, C, h, w); target (B, H, W) int64; log_count (C,), log N_c up to a constant.
    """
    pixel_loss = partial(
        _seesaw, log_count=log_count, mitigation=mitigation, compensation=compensation, grouped=grouped
    )
    return upsampled_per_image(pixel_loss, logits, target)


def _seesaw(
    logits: Tensor, target: Tensor, log_count: Tensor, mitigation: float, compensation: float, grouped: int
) -> Tensor:
    """Return ``pixel_seesaw`` for logits (B, C, H, W) of the size of the target."""
    label = target.where(target != IGNORE, 0)
    target_score = target_logit(logits, target, grouped)
    with torch.no_grad():
        log_ratio = logits - target_score[:, None]  # log σ_c − log σ_y
        log_count_ratio = log_count[None, :, None, None] - log_count[label][:, None]
        factor = mitigation * log_count_ratio.clamp_max(0) + compensation * log_ratio.clamp_min(0)
        factor.scatter_(1, label[:, None], 0.0)
        if grouped > 0:
            factor[:, :grouped].masked_fill_((target == BACKGROUND)[:, None], 0.0)
    return ((logits + factor).logsumexp(1) - target_score).where(target != IGNORE, 0.0)


def tilted_mean(loss: Tensor, target: Tensor, tilt: float, classes: int) -> Tensor:
    r"""Tilted mean over classes of the mean loss of their pixels (tilted cross-entropy, Szabo et al., CVPRW 2021).

        L = 1/t · log( 1/A · Σ_{c present} exp(t · L_c) ),   L_c = mean of the loss over the pixels of c,

    with A the number of classes present in the batch of all processes. t → 0 gives the mean over classes, t → ∞ the
    loss of the worst class. The result is zero without a valid pixel.

    Shapes: loss (B, H, W), zero where the target (B, H, W) is IGNORE.
    """
    label = target.where(target != IGNORE, classes).flatten()  # one row more, for pixels to ignore
    # In double precision: float32 is too coarse for the sum over a batch and for small tilts.
    total = loss.new_zeros(classes + 1, dtype=torch.float64).index_add(0, label, loss.flatten().double())[:-1]
    count = global_sum(count_labels(label, classes + 1)[:-1])
    mean = global_sum_with_grad(total) / count.clamp_min(1)
    present = (count > 0).double()
    num_present = present.sum().clamp_min(1)
    mean_over_classes = (mean * present).sum() / num_present
    # expm1 around the mean is precise for small tilts; the shift by the maximum prevents overflow for large ones.
    shift = (tilt * (mean - mean_over_classes).masked_fill(count == 0, -math.inf)).max().clamp_min(0).detach()
    excess = (torch.expm1(tilt * (mean - mean_over_classes) - shift) * present).sum() / num_present
    tilted = mean_over_classes + (shift + torch.log1p(excess)) / tilt
    return tilted.to(loss.dtype)
