r"""L_class, the fairness objective, Eqn 6-7, in four readings.

Eqn 6 weighs the loss of a pixel by q(y)/p(y), q uniform and p the class distribution; Eqn 7 takes the logarithm of
that and prints L_class = 1/N · Σ log(q(y)/p(y)).

- ``importance`` is Eqn 6 before the logarithm: class weights on the segmentation loss.
- ``adjust`` puts log(q/p) inside the likelihood: logits learn what is left once the prior is explained.
- ``kl`` is KL(U ‖ p̂) of the predicted class histogram p̂: zero when predictions are uniform over classes.
- ``literal`` is the printed average, −KL(p̂ ‖ U): minimising it makes predictions *less* uniform. It is kept to show
  that; nobody should train with it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from faircl.distributed import global_sum, global_sum_with_grad
from faircl.precision import at_least_float32_dtype


def importance_weights(share: Tensor, gamma: float, clip: tuple[float, float]) -> Tensor:
    """Return w_c = clip((q/p_c)^γ) / Σ_c p_c·clip((q/p_c)^γ), so that the mean weight over pixels is one.

    Shapes: share (K,), the class distribution p, summing to one; result (K,). A class that was never seen (p = 0)
    gets the upper clip.
    """
    ratio = (1 / (len(share) * share)).pow(gamma).clamp(*clip)
    return ratio / (share * ratio).sum()


def logit_offset(share: Tensor, strength: float = 1.0, floor: float = 1e-6) -> Tensor:
    """Return −strength·log(q/p_c), to be added to the logits in training; shapes (K,) to (K,)."""
    return strength * torch.log(share.clamp_min(floor) * len(share))


def class_histogram(logits: Tensor, valid: Tensor) -> Tensor:
    """Return p̂ (C,), the mean softmax over valid pixels of all processes; logits (B, C, h, w), valid (B, h, w)."""
    exact = at_least_float32_dtype(logits)
    total = (logits.softmax(1, dtype=exact) * valid[:, None]).sum((0, 2, 3))
    count = global_sum(valid.sum()).clamp_min(1)
    return global_sum_with_grad(total) / count


def kl_from_uniform(histogram: Tensor, floor: float = 1e-6) -> Tensor:
    """Return KL(U ‖ p̂) = mean_c log(q/p̂_c) for a histogram (C,)."""
    return -torch.log(histogram.clamp_min(floor)).mean() - math.log(len(histogram))


def literal_class_loss(histogram: Tensor, floor: float = 1e-6) -> Tensor:
    """Return Σ_c p̂_c·log(q/p̂_c) = −KL(p̂ ‖ U), Eqn 7 as printed, for a histogram (C,)."""
    return -(histogram * torch.log(histogram.clamp_min(floor) * len(histogram))).sum()
