"""Layer normalisation by one kernel, in the precision that the next layer reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faircl import kernels


class FusedLayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` over the last axis; under autocast its output is float32, as torch has it."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (…, D)."""
        # torch.compile fuses the plain form with its surroundings.
        if torch.compiler.is_compiling() or not kernels.usable(x):
            return super().forward(x)
        from faircl.kernels.layer_norm import layer_norm

        return layer_norm(x, self.weight, self.bias, self.eps, self._output_dtype(x))

    def _output_dtype(self, x: Tensor) -> torch.dtype:
        return torch.float32 if torch.is_autocast_enabled(x.device.type) else x.dtype


class FusedLayerNormLowPrecision(FusedLayerNorm):
    """The same before linear layers and convolutions, which under autocast would round its output anyway."""

    def _output_dtype(self, x: Tensor) -> torch.dtype:
        kind = x.device.type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def can_fuse_layer_norm(module: nn.Module) -> bool:
    """Whether the kernel computes this module: a plain layer norm over one axis, with a bias."""
    return type(module) is nn.LayerNorm and len(module.normalized_shape) == 1 and module.bias is not None
