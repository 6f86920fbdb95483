"""Averaging backbone and decoder with those of the network before a step."""

from __future__ import annotations

from torch import Tensor

from faircl.methods.ewf import fuse
from faircl.models.segmenter import Segmenter


class WeightAverage:
    """θ ← a·θ_old + (1 − a)·θ_new for backbone and decoder, statistics of their normalisation layers included.

    A step of few images also moves the features of classes that these images hardly show. Averaging takes back most of
    that, and keeps most of what was learned. The classifier is not averaged: new classes have no old weights, and those
    of old classes were trained against them.

    The old weights lie in host memory during the step. They are not saved: a resumed step begins from the network of
    the step before again.
    """

    def __init__(self, network: Segmenter, share: float) -> None:
        self.share = share
        self._old = {name: value.detach().cpu().clone() for name, value in _averaged(network).items()}

    def apply(self, network: Segmenter) -> None:
        """Average the weights in place."""
        fuse(_averaged(network), self._old, 1 - self.share)


def _averaged(network: Segmenter) -> dict[str, Tensor]:
    """Return the weights that are averaged, by name: floating numbers, not counters."""
    state = network.backbone.state_dict(prefix="backbone.") | network.decoder.state_dict(prefix="decoder.")
    return {name: value for name, value in state.items() if value.is_floating_point()}
