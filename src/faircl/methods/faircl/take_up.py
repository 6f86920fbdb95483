"""The state of FairCL for a network whose classes something else has trained."""

from __future__ import annotations

from torch import Tensor

from faircl.labels import BACKGROUND, UNLABELLED
from faircl.methods.faircl.method import FairCL


def take_up(method: FairCL, features: Tensor, filled: Tensor, share: Tensor, pixels: int, background: bool) -> None:
    """Give a fresh method the state that a first step leaves behind.

    Shapes: features (K, n, D), of which ``filled`` (K,) are used of each class, n at most ``queue``; share (K,), the
    class distribution p over so many ``pixels``.
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
