"""Stochastic depth: in training whole branches are dropped, image by image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """Drop a branch of an image with probability 1 − k, and scale what is kept.

        x_b ← x_b · ⌊k + u_b⌋ / k,   u_b ~ U[0, 1)

    Draws, and float32 values, are those of transformers' ``SegformerDropPath``, in one pass over the branch instead of
    two. In 16 bits the factor 1/k must be rounded to the branch's type: it is rounded up or down at random for each
    image, so that it is right on average. k is a tensor, so that under torch.compile blocks with different rates share
    one compilation. Shapes: (B, …) to the same.
    """

    kept: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.register_buffer("kept", torch.tensor(1 - rate), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Drop and scale in training; return the branch unchanged otherwise."""
        if not self.training:
            return x
        drawn = torch.rand((len(x), *(1 for _ in x.shape[1:])), dtype=self.kept.dtype, device=x.device)
        scale = self.kept.reciprocal()
        if x.dtype != self.kept.dtype:
            scale = scale + torch.finfo(x.dtype).eps * (torch.rand_like(drawn) - 0.5)
        return x * (torch.floor(drawn + self.kept).to(x.dtype) * scale.to(x.dtype))


def replace_stochastic_depth(blocks: Iterable[Any]) -> None:
    """Replace transformers' stochastic depth in some blocks."""
    for block in blocks:
        rate = getattr(block.drop_path, "drop_prob", 0.0)
        if rate > 0:
            block.drop_path = StochasticDepth(rate)
