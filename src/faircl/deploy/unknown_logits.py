r"""Scores of a pixel's logits z (C,): larger where the network is less sure of its classes.

With ``background`` false channel 0, which is background, is not a known class.
Shapes: logits (n, C) float32 to scores (n,).
"""

from __future__ import annotations

import math

from torch import Tensor

from faircl.labels import BACKGROUND


def max_softmax(logits: Tensor, background: bool = True) -> Tensor:
    """1 − max_c p_c, p = softmax(z); without background the maximum is over the other classes."""
    return 1 - _known(logits.softmax(1), background).amax(1)


def entropy(logits: Tensor, background: bool = True) -> Tensor:
    """−Σ_c p_c·log p_c / log C; without background p is the softmax over the other classes."""
    log_p = _known(logits, background).log_softmax(1)
    return -(log_p.exp() * log_p).sum(1) / math.log(max(log_p.shape[1], 2))


def energy(logits: Tensor, background: bool = True) -> Tensor:
    """−log Σ_c exp z_c."""
    return -_known(logits, background).logsumexp(1)


def max_logit(logits: Tensor, background: bool = True) -> Tensor:
    """−max_c z_c."""
    return -_known(logits, background).amax(1)


def _known(values: Tensor, background: bool) -> Tensor:
    return values if background else values[:, BACKGROUND + 1 :]
