"""SegFormer's all-MLP decoder, a light one for any backbone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faircl.models.resize import resize


class MlpDecoder(nn.Module):
    r"""Projects every stage to one width, upsamples to the finest and fuses.

        embedding = ReLU(norm(Σ_s up(W_s · (P_s · x_s + b_s))))

    which is SegFormer's fusion W · concat_s up(P_s · x_s + b_s): a 1×1 convolution and an interpolation whose weights
    sum to one commute, so the (B, S·D, h, w) concatenation never exists. ``bare`` leaves norm and ReLU out and repeats
    pixels instead of interpolating, as FairCL's released code does.

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
        # The coarsest stage comes first among the fused channels, as in the published weights.
        weights = torch.split(self.fuse.weight, self.fuse.out_channels, 1)[::-1]
        total, bias = None, self.fuse.bias
        for stage, project, weight in zip(stages, self.projections, weights, strict=True):
            part = resize(F.conv2d(project(stage), weight, bias), size, "nearest" if self.bare else "bilinear")
            total, bias = (part if total is None else total + part), None
        embedding: Tensor = self.activation(self.norm(total))
        return embedding
