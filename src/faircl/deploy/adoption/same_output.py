"""Whether an adopted network computes what its own library computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from faircl.deploy.adoption.source import Source
from faircl.errors import UserError
from faircl.models.segmenter import Segmenter
from faircl.seeding import seeded
from faircl.upsampling import upsampled

TOLERANCE = 1e-4
"""Largest difference of two logits, as a share of the largest logit; rounding alone gives about 1e-6."""
_SIZES = ((96, 128), (75, 101))


class Agreement(NamedTuple):
    """Largest difference of logits as a share of the largest logit, and the share of pixels with the same class."""

    difference: float
    same_pixels: float


@torch.no_grad()
def check_same_output(network: Segmenter, source: Source, order: Sequence[int], seed: int = 0) -> Agreement | None:
    """Compare both networks on random images of two sizes; raise a UserError if they differ by more than rounding.

    ``order`` is the source's channel of every channel. None without a forward pass of the source's own.
    """
    if source.forward is None:
        return None
    difference, same, pixels = 0.0, 0, 0
    for number, size in enumerate(_SIZES):
        with seeded(seed, "adopt", number):
            images = torch.rand((2, 3, *size), dtype=torch.float32)
        expected = upsampled(source.forward(images)[:, list(order)], size)
        found = upsampled(network.eval()(images.to(network.mean.dtype)).logits, size)
        difference = max(difference, _relative(found, expected))
        same += int((found.argmax(1) == expected.argmax(1)).sum())
        pixels += found[:, 0].numel()
    if not difference <= TOLERANCE:  # also if it is NaN
        raise UserError(
            f"faircl's network differs from {source.found} in {source.path}: its logits on random images by "
            f"{difference:.1e} of the largest one, more than the {TOLERANCE:.0e} that rounding explains; it is not "
            "adopted."
        )
    return Agreement(difference, same / pixels)


def _relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(torch.finfo(expected.dtype).tiny))
