"""The state of FairCL for a network that was trained without it."""

from __future__ import annotations

from torch import Tensor

from faircl.labels import BACKGROUND, UNLABELLED
from faircl.methods.faircl.method import FairCL


def take_up(method: FairCL, features: Tensor, filled: Tensor, share: Tensor, pixels: int, background: bool) -> None:
    """Set the state of a new method to that after a first step with these features and this class distribution.

    Shapes: features (K, n, D), n ≤ ``queue``, of which the first ``filled`` (K,) of each class are used; share (K,),
    the class distribution p, counted over ``pixels`` pixels.
    """
    method.old_classes, method.unlabelled_label = 0, BACKGROUND if background else UNLABELLED
    method.updates, method.domain, method.hides_classes = 0, False, False
    banks = (method.bank,) if method.unknown is None else (method.bank, method.unknown)
    for bank in banks:
        bank.begin_step(len(share), background and method.unknown is None)
    method.bank.fill(features, filled)
    method.distribution.set(share, pixels)
    if method.config.lambda_replay > 0:
        method.memory.keep(method.bank)
    for bank in banks:
        bank.finish_step()
