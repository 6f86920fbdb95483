"""Decoders of the DeepLab family: torchvision's head, the one of MiB and PLOP, and DeepLabV3+'s."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.segmentation import deeplabv3

from faircl.models.resize import resize

WIDTH = 256
"""Channels of every DeepLab embedding."""


class DeepLabHead(nn.Sequential):
    """torchvision's DeepLabV3 head without its last layer: ASPP, 3×3 convolution, norm, ReLU.

    Shapes: stages to embedding (B, 256, h, w) at the last stage's stride.
    """

    def __init__(self, width: int, rates: Sequence[int]) -> None:
        super().__init__(ASPP(width, rates), *conv_norm(WIDTH, WIDTH, 3))

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        aspp, conv, norm, relu = self
        embedding: Tensor = relu(norm(conv(aspp(stages[-1]))))
        return embedding


class ASPP(deeplabv3.ASPP):  # type: ignore[misc]  # torchvision has no types
    """Atrous spatial pyramid pooling, with an error that explains why it cannot train on a single image.

    The pooled branch, one value per image and channel, is repeated over the map. torchvision interpolates it to the
    same values, which under autocast turns all branches into float32.
    """

    def __init__(self, width: int, rates: Sequence[int]) -> None:
        super().__init__(width, list(rates), WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 256, h, w)."""
        *local, pool = self.convs
        check_pooled_norm(x, pool[2])
        branches = [conv(x) for conv in local]
        pooled = x
        for layer in pool:  # its own forward interpolates
            pooled = layer(pooled)
        # Copied into the branches' memory layout: torch.cat would give all of them that of an expanded value.
        y: Tensor = self.project(torch.cat([*branches, torch.empty_like(branches[0]).copy_(pooled)], dim=1))
        return y


class MiBHead(nn.Module):
    """The head of MiB, PLOP and their successors.

    Four parallel convolutions (1×1 and 3×3 at three rates), one norm over all, 1×1 to 256; a pooled branch is added
    rather than concatenated; leaky ReLU; neither a 3×3 after it nor dropout. With in-place norm replaced by plain
    BatchNorm, and pooling over the whole image at test time too.

    Shapes: stages to embedding (B, 256, h, w) at the last stage's stride.
    """

    def __init__(self, width: int, rates: Sequence[int]) -> None:
        super().__init__()
        branches = [nn.Conv2d(width, WIDTH, 1, bias=False)]
        branches += [nn.Conv2d(width, WIDTH, 3, padding=r, dilation=r, bias=False) for r in rates]
        self.branches = nn.ModuleList(branches)
        self.branch_norm = nn.BatchNorm2d(WIDTH * len(branches))
        self.reduce = nn.Conv2d(WIDTH * len(branches), WIDTH, 1, bias=False)
        self.pool = nn.Conv2d(width, WIDTH, 1, bias=False)
        self.pool_norm = nn.BatchNorm2d(WIDTH)
        self.pool_reduce = nn.Conv2d(WIDTH, WIDTH, 1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        x = stages[-1]
        check_pooled_norm(x, self.pool_norm)
        local = self.branch_norm(torch.cat([branch(x) for branch in self.branches], 1))
        pooled = self.pool_norm(self.pool(x.mean((2, 3), keepdim=True)))
        y = self.reduce(F.leaky_relu(local, 0.01)) + self.pool_reduce(F.leaky_relu(pooled, 0.01))
        return F.leaky_relu(self.norm(y), 0.01)


class DeepLabPlusHead(nn.Module):
    """DeepLabV3+: ASPP, upsampled to stride 4, beside 48 channels of the first stage, then two 3×3 convolutions.

    Shapes: stages to embedding (B, 256, h, w) at the first stage's stride.
    """

    def __init__(self, widths: Sequence[int], rates: Sequence[int]) -> None:
        super().__init__()
        self.aspp = ASPP(widths[-1], rates)
        self.skip = conv_norm(widths[0], 48, 1)
        self.mix = nn.Sequential(conv_norm(WIDTH + 48, WIDTH, 3), conv_norm(WIDTH, WIDTH, 3))

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        fine = self.skip(stages[0])
        coarse = resize(self.aspp(stages[-1]), fine.shape[-2:])
        embedding: Tensor = self.mix(torch.cat([coarse, fine], 1))
        return embedding


def conv_norm(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    """Return convolution, BatchNorm and ReLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


def check_pooled_norm(x: Tensor, norm: nn.Module) -> None:
    """Refuse a single image where a norm needs several: pooled, an image is one value per channel."""
    if isinstance(norm, nn.BatchNorm2d) and norm.training and len(x) < 2:
        raise ValueError(
            "the pooled branch of DeepLab normalises over images and needs at least two per process in training, "
            "or train.frozen_norm: always"
        )
