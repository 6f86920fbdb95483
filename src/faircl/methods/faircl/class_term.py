"""L_class inside the segmentation loss: class weights or logit offsets, by its reading."""

from __future__ import annotations

from torch import Tensor

from faircl.labels import IGNORE
from faircl.losses import class_histogram, importance_weights, kl_from_uniform, literal_class_loss, logit_offset
from faircl.methods.faircl.config import FairCLConfig


def weight_and_offset(config: FairCLConfig, share: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return class weights and logit offsets (K,), None where the reading has none; share (K,) is p with sum one.

    ``importance``: λ·(w_y − 1)·CE added to CE is CE weighted by 1 + λ·(w_y − 1).
    ``adjust``: −λ·log(q/p) is added to the logits.
    """
    if config.lambda_class > 0 and config.fairness == "importance":
        return 1 + config.lambda_class * (importance_weights(share, config.gamma, config.clip) - 1), None
    if config.lambda_class > 0 and config.fairness == "adjust":
        return None, logit_offset(share, config.lambda_class)
    return None, None


def class_distance(config: FairCLConfig, histogram: Tensor) -> Tensor:
    """Return L_class of a predicted distribution p̂ (K,), for the readings ``kl`` and ``literal``."""
    return (kl_from_uniform if config.fairness == "kl" else literal_class_loss)(histogram)


def predicted_term(config: FairCLConfig, logits: Tensor, targets: Tensor) -> Tensor:
    """Return λ·L_class with p̂ of these pixels alone; 0 for the readings that act inside the segmentation loss."""
    if config.lambda_class > 0 and config.fairness in ("kl", "literal"):
        return config.lambda_class * class_distance(config, class_histogram(logits, targets != IGNORE))
    return logits.new_zeros(())
