"""Losses that need all upsampled logits of a pixel at once, image by image: those of a batch never exist."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from faircl.losses.cross_entropy import is_small, upsampled


def by_image(score: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> Tensor:
    """Return score(upsampled logits, target) of a batch, (B, H, W), at least float32.

    ``score`` takes logits (b, C, H, W) and target (b, H, W) of some images to values (b, H, W), and changes neither.
    Forward keeps nothing of an image but its small logits; backward upsamples them and scores again, so that in both
    the (1, C, H, W) of one image are there at a time. A CPU takes small batches at once, which is faster.
    Shapes: logits (B, C, h, w) of any float type; target (B, H, W) int64.
    """

    def one(small: Tensor, label: Tensor) -> Tensor:
        return score(upsampled(small, label.shape[-2:]), label)

    if is_small(logits, target):
        return one(logits, target)
    # A batch of nothing is split into one part without images, whose values are none.
    parts = zip(torch.split(logits, 1), torch.split(target, 1), strict=True)
    return torch.cat([checkpoint(one, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])
