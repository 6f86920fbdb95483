r"""L_class, the fairness objective, Eqn 6-7 of FairCL, in four variants.

Eqn 6 weights the loss of a pixel by q(y)/p(y), with q uniform and p the class distribution; Eqn 7 takes the logarithm
and is printed as L_class = 1/N · Σ log(q(y)/p(y)).

- ``importance`` is Eqn 6 before the logarithm: class weights of the segmentation loss.
- ``adjust`` is logit adjustment: −log(q/p) is added to the logits in training, so that they do not learn the prior.
- ``kl`` is KL(U ‖ p̂) of the predicted class histogram p̂: zero if predictions are uniform over classes.
- ``literal`` is Eqn 7 as printed, −KL(p̂ ‖ U): minimising it makes predictions *less* uniform. It is kept for
  comparison only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from faircl.distributed import global_sum, global_sum_with_grad
from faircl.precision import at_least_float32_dtype


def importance_weights(share: Tensor, gamma: float, clip: tuple[float, float]) -> Tensor:
    """Return w_c = clip((q/p_c)^γ) / Σ_c p_c·clip((q/p_c)^γ), whose mean over pixels is one.

    Shapes: share (K,), the class distribution p, with sum one; result (K,). For a class without pixels (p = 0) the
    ratio is the upper clip.
    """
    ratio = (1 / (len(share) * share)).pow(gamma).clamp(*clip)
    return ratio / (share * ratio).sum()


def logit_offset(share: Tensor, strength: float = 1.0, floor: float = 1e-6) -> Tensor:
    """Return −strength·log(q/p_c), which is added to the logits in training; (K,) to (K,)."""
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
