"""Decoders of the DeepLab family: the heads of torchvision, of MiB and PLOP, and of DeepLabV3+."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.segmentation import deeplabv3

from faircl.models.resize import resize

WIDTH = 256
"""Number of channels D of a DeepLab embedding, as published."""


class DeepLabHead(nn.Sequential):
    """torchvision's DeepLabV3 head without its classifier: ASPP, 3×3 convolution, norm, ReLU.

    Shapes: stages (B, D_s, h_s, w_s) to embedding (B, D, h, w) at the stride of the last stage.
    """

    def __init__(self, inputs: int, rates: Sequence[int], width: int = WIDTH) -> None:
        super().__init__(ASPP(inputs, rates, width), *conv_norm(width, width, 3))

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        aspp, conv, norm, relu = self
        embedding: Tensor = relu(norm(conv(aspp(stages[-1]))))
        return embedding


class ASPP(deeplabv3.ASPP):  # type: ignore[misc]  # torchvision has no types
    """Atrous spatial pyramid pooling that rejects training on a single image with a clear error.

    The pooled branch has one value per image and channel, which is copied to all pixels. torchvision interpolates it
    instead: the values are the same, but under autocast the concatenated branches become float32.

    Shapes: (B, C, h, w) to (B, D, h, w).
    """

    def __init__(self, inputs: int, rates: Sequence[int], width: int = WIDTH) -> None:
        super().__init__(inputs, list(rates), width)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, D, h, w)."""
        *local, pool = self.convs
        check_pooled_norm(x, pool[2])
        branches = [conv(x) for conv in local]
        pooled = x
        for layer in pool:  # not pool(x): its forward interpolates
            pooled = layer(pooled)
        # Copied to the memory layout of the branches: torch.cat of an expanded tensor returns another layout. Expanded
        # before it is copied: torch's ONNX exporter writes a copy that does not expand.
        copied = torch.empty_like(branches[0]).copy_(pooled.expand_as(branches[0]))
        y: Tensor = self.project(torch.cat([*branches, copied], dim=1))
        return y


class MiBHead(nn.Module):
    """The DeepLab head of MiB, PLOP and their successors.

    Four parallel convolutions (1×1, and 3×3 at three dilation rates) are concatenated, normalised together and
    projected to D channels by a 1×1 convolution. The pooled branch is added, not concatenated. Activations are leaky
    ReLU; there is no final 3×3 convolution and no dropout. Differences from the published code: BatchNorm replaces
    in-place BatchNorm, and pooling covers the whole image at test time too.

    Shapes: stages (B, D_s, h_s, w_s) to embedding (B, D, h, w) at the stride of the last stage.
    """

    def __init__(self, inputs: int, rates: Sequence[int], width: int = WIDTH) -> None:
        super().__init__()
        branches = [nn.Conv2d(inputs, width, 1, bias=False)]
        branches += [nn.Conv2d(inputs, width, 3, padding=r, dilation=r, bias=False) for r in rates]
        self.branches = nn.ModuleList(branches)
        self.branch_norm = nn.BatchNorm2d(width * len(branches))
        self.reduce = nn.Conv2d(width * len(branches), width, 1, bias=False)
        self.pool = nn.Conv2d(inputs, width, 1, bias=False)
        self.pool_norm = nn.BatchNorm2d(width)
        self.pool_reduce = nn.Conv2d(width, width, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        x = stages[-1]
        check_pooled_norm(x, self.pool_norm)
        local = self.branch_norm(torch.cat([branch(x) for branch in self.branches], 1))
        pooled = self.pool_norm(self.pool(x.mean((2, 3), keepdim=True)))
        y = self.reduce(F.leaky_relu(local, 0.01)) + self.pool_reduce(F.leaky_relu(pooled, 0.01))
        return F.leaky_relu(self.norm(y), 0.01)


class DeepLabPlusHead(nn.Module):
    """The DeepLabV3+ head: ASPP upsampled to stride 4, concatenated with 48 channels of the first stage, two 3×3 convs.

    Shapes: stages (B, D_s, h_s, w_s) to embedding (B, D, h, w) at the stride of the first stage.
    """

    def __init__(self, stage_widths: Sequence[int], rates: Sequence[int], width: int = WIDTH) -> None:
        super().__init__()
        self.aspp = ASPP(stage_widths[-1], rates, width)
        self.skip = conv_norm(stage_widths[0], 48, 1)
        self.mix = nn.Sequential(conv_norm(width + 48, width, 3), conv_norm(width, width, 3))

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        fine = self.skip(stages[0])
        coarse = resize(self.aspp(stages[-1]), fine.shape[-2:])
        embedding: Tensor = self.mix(torch.cat([coarse, fine], 1))
        return embedding


def conv_norm(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    """Return a sequence of convolution, BatchNorm and ReLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


def check_pooled_norm(x: Tensor, norm: nn.Module) -> None:
    """Raise ``ValueError`` if the norm of the pooled branch, with one value per image and channel, gets one image."""
    if isinstance(norm, nn.BatchNorm2d) and norm.training and len(x) < 2:
        raise ValueError(
            "the pooled branch of DeepLab normalises over images and needs at least two per process in training, "
            "or train.frozen_norm: always"
        )
