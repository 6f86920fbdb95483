"""The all-MLP decoder with fused upsampling and normalisation, and with fixed weights for inference."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

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


class FixedMlpDecoder(FusedMlpDecoder):
    r"""An ``MlpDecoder`` in evaluation whose weights are computed once, and hold those of its norm.

    s·(Σ_s up(W_s·P_s · x_s) + b − μ) + β = Σ_s up(s·W_s·P_s · x_s) + s·(b − μ) + β,   s = γ/√(σ² + ε)
    """

    fixed: tuple[list[Tensor], Tensor]

    def _folded_weights(self, device: str) -> tuple[list[Tensor], Tensor]:
        return self.fixed

    def normalise(self, x: Tensor) -> Tensor:
        """Return activation(x): the norm is in the weights."""
        if type(self.activation) is nn.ReLU:
            return x.relu_()
        y: Tensor = self.activation(x)
        return y


@torch.no_grad()
def fix_weights(decoder: MlpDecoder, dtype: torch.dtype) -> None:
    """Make a decoder of this very class a ``FixedMlpDecoder``, with weights of a dtype; its parameters do not change.

    A norm that is not evaluated by running statistics leaves it as it is.
    """
    norm = decoder.norm
    if type(norm) not in (nn.Identity, nn.BatchNorm2d):
        return
    exact = copy.deepcopy(decoder).double()
    weights, bias = exact._folded_weights(decoder.fuse.weight.device.type)
    if isinstance(norm, nn.BatchNorm2d):
        if norm.training or norm.running_mean is None or norm.running_var is None:
            return
        zero, one = torch.zeros_like(bias), torch.ones_like(bias)
        gamma, beta = (one, zero) if norm.weight is None else (norm.weight.double(), norm.bias.double())
        scale = gamma / (norm.running_var.double() + norm.eps).sqrt()
        weights = [scale[:, None, None, None] * weight for weight in weights]
        bias = scale * (bias - norm.running_mean.double()) + beta
    decoder.__class__ = FixedMlpDecoder
    vars(decoder)["fixed"] = ([weight.to(dtype) for weight in weights], bias.to(dtype))
