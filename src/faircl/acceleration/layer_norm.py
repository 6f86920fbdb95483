"""Layer normalisation by a kernel that writes the precision that the next layer reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faircl import kernels


class FusedLayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` over the last axis; under autocast its output is float32, as in torch."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (…, D)."""
        # torch.compile fuses the plain implementation with its surroundings.
        if torch.compiler.is_compiling() or not kernels.usable(x):
            return super().forward(x)
        from faircl.kernels.layer_norm import layer_norm

        return layer_norm(x, self.weight, self.bias, self.eps, self._output_dtype(x))

    def _output_dtype(self, x: Tensor) -> torch.dtype:
        return torch.float32 if torch.is_autocast_enabled(x.device.type) else x.dtype


class FusedLayerNormLowPrecision(FusedLayerNorm):
    """A layer norm before linear layers and convolutions, whose output has the dtype to which autocast casts it."""

    def _output_dtype(self, x: Tensor) -> torch.dtype:
        device_type = x.device.type
        return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else x.dtype


def can_fuse_layer_norm(module: nn.Module) -> bool:
    """Whether the kernel supports a module: an ``nn.LayerNorm`` over one axis with a bias."""
    return type(module) is nn.LayerNorm and len(module.normalized_shape) == 1 and module.bias is not None
