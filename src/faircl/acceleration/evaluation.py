"""Evaluation mode of a network, with fused modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from faircl.acceleration.fusion import fused
from faircl.models.segmenter import Segmenter


@contextmanager
def evaluation_mode(model: Segmenter) -> Iterator[None]:
    """Set evaluation mode and fuse modules; restore the mode of every module afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with fused(model):
            yield
    finally:
        for module, training in modes:
            module.training = training
