"""Layer normalisation that takes the fast way on a GPU."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from faircl import kernels


class RowNorm(nn.LayerNorm):
    """``nn.LayerNorm`` over the last axis; under autocast in full precision, as torch has it."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise rows (…, D)."""
        # A compiler fuses the plain way with what is around it.
        if torch.compiler.is_compiling() or not kernels.usable(x):
            return super().forward(x)
        from faircl.kernels.layer_norm import layer_norm

        return layer_norm(x, self.weight, self.bias, self.eps, self._output(x))

    def _output(self, x: Tensor) -> torch.dtype:
        autocast = torch.is_autocast_enabled(x.device.type)
        return torch.float32 if autocast else x.dtype


class RowNormForProducts(RowNorm):
    """The same before linear layers and convolutions: under autocast they round its output; here it is so at once."""

    def _output(self, x: Tensor) -> torch.dtype:
        autocast = torch.is_autocast_enabled(x.device.type)
        return torch.get_autocast_dtype(x.device.type) if autocast else x.dtype


def speed_up_norms(module: nn.Module, before_products: Iterable[nn.Module]) -> None:
    """Give all layer norms of a module a fast way, in place; those of some modules feed products."""
    for part in module.modules():
        if type(part) is nn.LayerNorm and len(part.normalized_shape) == 1 and part.bias is not None:
            part.__class__ = RowNorm
    for one in before_products:
        for part in one.modules():
            if type(part) is RowNorm:
                part.__class__ = RowNormForProducts
