"""Stochastic depth: in training whole branches are left out, image by image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """Drop a branch of an image with probability 1 − k, and scale what is kept.

        x_b ← x_b · ⌊k + u_b⌋ / k,   u_b ~ U[0, 1)

    In float32 draws are those of transformers' ``SegformerDropPath``. Values are touched once instead of twice, so in
    16 bits it is 1/k that is rounded: for every image up or down at random, or all values would be off by one part.
    k is a tensor, so that blocks with different rates share one compilation. Shapes: (B, …) to the same.
    """

    kept: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.register_buffer("kept", torch.tensor(1 - rate), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Drop and scale in training; return the branch as it is otherwise."""
        if not self.training:
            return x
        drawn = torch.rand((len(x), *(1 for _ in x.shape[1:])), dtype=self.kept.dtype, device=x.device)
        scale = self.kept.reciprocal()
        if x.dtype != self.kept.dtype:
            scale = scale + torch.finfo(x.dtype).eps * (torch.rand_like(drawn) - 0.5)
        return x * (torch.floor(drawn + self.kept).to(x.dtype) * scale.to(x.dtype))


def speed_up_depth(blocks: Iterable[Any]) -> None:
    """Put ours in the place of transformers' stochastic depth."""
    for block in blocks:
        rate = getattr(block.drop_path, "drop_prob", 0.0)
        if rate > 0:
            block.drop_path = StochasticDepth(rate)
