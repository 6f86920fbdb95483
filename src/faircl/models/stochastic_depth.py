"""Stochastic depth: during training, residual branches are dropped at random for each image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """Drop the branch of an image with probability 1 − k, and scale the kept branches by 1/k.

        x_b ← x_b · ⌊k + u_b⌋ / k,   u_b ~ U[0, 1)

    Random numbers and float32 values equal those of transformers' ``SegformerDropPath``, in one pass over the branch
    instead of two. In 16-bit types 1/k has to be rounded; it is rounded up or down at random for each image, so that
    its mean is right. k is a tensor: under torch.compile, blocks with different rates then share one compilation.

    Shapes: (B, …) to (B, …).
    """

    keep_probability: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.register_buffer("keep_probability", torch.tensor(1 - rate), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Drop and scale in training mode; return the input in evaluation mode."""
        if not self.training:
            return x
        uniform = torch.rand((len(x), *(1 for _ in x.shape[1:])), dtype=self.keep_probability.dtype, device=x.device)
        scale = self.keep_probability.reciprocal()
        if x.dtype != self.keep_probability.dtype:
            scale = scale + torch.finfo(x.dtype).eps * (torch.rand_like(uniform) - 0.5)
        return x * (torch.floor(uniform + self.keep_probability).to(x.dtype) * scale.to(x.dtype))


def replace_stochastic_depth(blocks: Iterable[Any]) -> None:
    """Replace transformers' stochastic depth in the given blocks."""
    for block in blocks:
        rate = getattr(block.drop_path, "drop_prob", 0.0)
        if rate > 0:
            block.drop_path = StochasticDepth(rate)
