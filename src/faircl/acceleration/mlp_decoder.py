"""The all-MLP decoder with fused upsampling and normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from faircl import kernels
from faircl.acceleration.batch_norm import norm_relu
from faircl.models.mlp_decoder import MlpDecoder


class FusedMlpDecoder(MlpDecoder):
    """An ``MlpDecoder`` that upsamples and adds maps by a kernel, and fuses norm and ReLU in recorded passes."""

    def add_upsampled(self, maps: list[Tensor], size: torch.Size) -> Tensor:
        """Upsample maps to a size and add them."""
        if self.bare or len(maps) == 1 or not kernels.usable(maps[0]):
            return super().add_upsampled(maps, size)
        from faircl.kernels.add_upsampled import add_upsampled

        return add_upsampled(*maps)

    def normalise(self, x: Tensor) -> Tensor:
        """Return activation(norm(x))."""
        return norm_relu(x, self.norm, self.activation)
