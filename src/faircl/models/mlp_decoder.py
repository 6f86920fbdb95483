"""SegFormer's all-MLP decoder, a light one for any backbone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faircl.models.resize import own_precision, resize


class MlpDecoder(nn.Module):
    r"""Projects every stage to one width, upsamples to the finest and fuses.

        embedding = ReLU(norm(Σ_s up(W_s·P_s · x_s) + Σ_s W_s·b_s))

    which is SegFormer's fusion W · concat_s up(P_s · x_s + b_s): a 1×1 convolution and an interpolation whose weights
    sum to one commute, and two convolutions in a row are one: neither the (B, S·D, h, w) concatenation nor the D-wide
    projections exist. ``bare`` leaves norm and ReLU out and repeats pixels instead of interpolating, as FairCL's
    released code does.

    Shapes: stages (B, D_s, h_s, w_s) to embedding (B, D, h, w) at the first stage's stride.
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
        weights, bias = self._folded(stages[0].device.type)
        # The bias is the same for all pixels, so it is added to the coarsest map.
        biases = [None] * (len(stages) - 1) + [bias]
        parts = [F.conv2d(x, weight, b) for x, weight, b in zip(stages, weights, biases, strict=True)]
        return self.normalise(self.add_upsampled(parts, size))

    def _folded(self, device: str) -> tuple[list[Tensor], Tensor]:
        """Return W_s·P_s of every stage as 1×1 convolutions (D, D_s, 1, 1), and Σ_s W_s·b_s (D,), in full precision."""
        with own_precision(device):
            # The coarsest stage comes first among the fused channels, as in the published weights.
            fuse = torch.split(self.fuse.weight.flatten(1), self.fuse.out_channels, 1)[::-1]
            weights, biases = [], [] if self.fuse.bias is None else [self.fuse.bias]
            for own, project in zip(fuse, self.projections, strict=True):
                assert isinstance(project, nn.Conv2d)
                assert project.bias is not None
                weights.append((own @ project.weight.flatten(1))[:, :, None, None])
                biases.append(own @ project.bias)
            return weights, torch.stack(biases).sum(0)

    def add_upsampled(self, maps: list[Tensor], size: torch.Size) -> Tensor:
        """Bring maps to a size and add them up."""
        total = maps[0]
        for one in maps[1:]:
            total = total + resize(one, size, "nearest" if self.bare else "bilinear")
        return total

    def normalise(self, x: Tensor) -> Tensor:
        """Return activation(norm(x))."""
        y: Tensor = self.activation(self.norm(x))
        return y
