"""L_class in its four readings: class weights or logit offsets of L_seg, or a function of p̂."""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.labels import BACKGROUND, IGNORE
from faircl.losses import class_histogram, importance_weights, kl_from_uniform, literal_class_loss, logit_offset
from faircl.methods.faircl.config import FairCLConfig


def weight_and_offset(
    config: FairCLConfig, share: Tensor, background: bool = False
) -> tuple[Tensor | None, Tensor | None]:
    """Return the class weights and the logit offsets of L_seg, each (K,) or None; ``share`` is p (K,) with sum 1.

    - ``importance``: CE + λ·(w_y − 1)·CE, a class weight of 1 + λ·(w_y − 1). Where labels show a ``background`` class,
      the offsets of ``background_offset``.
    - ``adjust``: an offset of −λ·log(q/p), with q = 1/K.
    - ``kl``, ``literal``: neither.
    """
    if config.lambda_class > 0 and config.fairness == "importance":
        weight = 1 + config.lambda_class * (importance_weights(share, config.gamma, config.clip) - 1)
        given_back = background and config.background_offset > 0
        return weight, background_offset(weight, config.background_offset) if given_back else None
    if config.lambda_class > 0 and config.fairness == "adjust":
        return None, logit_offset(share, config.lambda_class)
    return None, None


def background_offset(weight: Tensor, strength: float) -> Tensor:
    """Return logit offsets (K,) that take back what class weights w (K,) shift from background, channel 0, to classes.

        o_0 = β · min(0, log w_0 − mean_{c ≥ 1} log w_c),    o_c = 0

    The weighted loss is smallest at z_c = log p(c|x) + log w_c. What classes gain on each other is fairness; what all
    of them gain on the background is false positives. Added to the logits of labelled pixels, in training alone, the
    offset moves the minimum: at β = 1 the background is predicted as if it had the classes' mean weight.
    """
    log, classes = weight.log(), slice(BACKGROUND + 1, None)
    if len(log[classes]) == 0:
        return torch.zeros_like(log)
    against = strength * (log[BACKGROUND] - log[classes].mean()).clamp_max(0)
    return torch.cat([against[None], torch.zeros_like(log[classes])])


def class_distance(config: FairCLConfig, histogram: Tensor) -> Tensor:
    """Return L_class of a predicted class distribution p̂ (K,), under ``kl`` and ``literal``."""
    return (kl_from_uniform if config.fairness == "kl" else literal_class_loss)(histogram)


def predicted_term(config: FairCLConfig, logits: Tensor, targets: Tensor) -> Tensor:
    """Return λ·L_class with p̂ of these logits (B, K, H, W) alone, without momentum; 0 for readings inside L_seg."""
    if config.lambda_class > 0 and config.fairness in ("kl", "literal"):
        return config.lambda_class * class_distance(config, class_histogram(logits, targets != IGNORE))
    return logits.new_zeros(())
