"""L_class in its four readings: class weights or logit offsets of L_seg, or a function of p̂."""

from __future__ import annotations

from torch import Tensor

from faircl.labels import IGNORE
from faircl.losses import class_histogram, importance_weights, kl_from_uniform, literal_class_loss, logit_offset
from faircl.methods.faircl.config import FairCLConfig


def weight_and_offset(config: FairCLConfig, share: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return the class weights and the logit offsets of L_seg, each (K,) or None; ``share`` is p (K,) with sum 1.

    - ``importance``: CE + λ·(w_y − 1)·CE, a class weight of 1 + λ·(w_y − 1).
    - ``adjust``: an offset of −λ·log(q/p), with q = 1/K.
    - ``kl``, ``literal``: neither.
    """
    if config.lambda_class > 0 and config.fairness == "importance":
        return 1 + config.lambda_class * (importance_weights(share, config.gamma, config.clip) - 1), None
    if config.lambda_class > 0 and config.fairness == "adjust":
        return None, logit_offset(share, config.lambda_class)
    return None, None


def class_distance(config: FairCLConfig, histogram: Tensor) -> Tensor:
    """Return L_class of a predicted class distribution p̂ (K,), under ``kl`` and ``literal``."""
    return (kl_from_uniform if config.fairness == "kl" else literal_class_loss)(histogram)


def predicted_term(config: FairCLConfig, logits: Tensor, targets: Tensor) -> Tensor:
    """Return λ·L_class with p̂ of these logits (B, K, H, W) alone, without momentum; 0 for readings inside L_seg."""
    if config.lambda_class > 0 and config.fairness in ("kl", "literal"):
        return config.lambda_class * class_distance(config, class_histogram(logits, targets != IGNORE))
    return logits.new_zeros(())
