"""SegFormer's all-MLP decoder, for any backbone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faircl.models.resize import autocast_disabled, resize


class MlpDecoder(nn.Module):
    r"""Projects every stage to one width, upsamples to the size of the finest stage and sums.

        embedding = ReLU(norm(Σ_s up(W_s·P_s · x_s) + Σ_s W_s·b_s))

    This equals SegFormer's fusion W · concat_s up(P_s · x_s + b_s), since a 1×1 convolution commutes with an
    interpolation whose weights sum to one, and two consecutive 1×1 convolutions are one. Neither the concatenation
    (B, S·D, h, w) nor the D-wide projections are computed. ``bare`` omits norm and ReLU and upsamples by nearest
    neighbour, as FairCL's released code does.

    Shapes: stages (B, D_s, h_s, w_s) to embedding (B, D, h, w) at the stride of the first stage.
    """

    def __init__(self, widths: Sequence[int], width: int, bare: bool = False) -> None:
        super().__init__()
        self.bare = bare
        self.projections = nn.ModuleList(nn.Conv2d(inputs, width, 1) for inputs in widths)
        self.fuse = nn.Conv2d(width * len(widths), width, 1, bias=bare)
        self.norm = nn.Identity() if bare else nn.BatchNorm2d(width)
        self.activation = nn.Identity() if bare else nn.ReLU()

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        size = stages[0].shape[-2:]
        weights, bias = self._folded_weights(stages[0].device.type)
        # The bias is the same for all pixels, so it is added to the smallest map.
        biases = [None] * (len(stages) - 1) + [bias]
        maps = [F.conv2d(x, weight, b) for x, weight, b in zip(stages, weights, biases, strict=True)]
        return self.normalise(self.add_upsampled(maps, size))

    def _folded_weights(self, device: str) -> tuple[list[Tensor], Tensor]:
        """Return the weights W_s·P_s (D, D_s, 1, 1) of every stage and the bias Σ_s W_s·b_s (D,), without autocast."""
        with autocast_disabled(device):
            # In the published weights the channels of the coarsest stage come first.
            fuse = torch.split(self.fuse.weight.flatten(1), self.fuse.out_channels, 1)[::-1]
            weights, biases = [], [] if self.fuse.bias is None else [self.fuse.bias]
            for fuse_weight, projection in zip(fuse, self.projections, strict=True):
                assert isinstance(projection, nn.Conv2d)
                assert projection.bias is not None
                weights.append((fuse_weight @ projection.weight.flatten(1))[:, :, None, None])
                biases.append(fuse_weight @ projection.bias)
            return weights, torch.stack(biases).sum(0)

    def add_upsampled(self, maps: list[Tensor], size: torch.Size) -> Tensor:
        """Upsample maps to a size and add them."""
        total = maps[0]
        for coarse in maps[1:]:
            total = total + resize(coarse, size, "nearest" if self.bare else "bilinear")
        return total

    def normalise(self, x: Tensor) -> Tensor:
        """Return activation(norm(x))."""
        y: Tensor = self.activation(self.norm(x))
        return y
