"""torchvision's ResNets and MobileNets as backbones of four stages, dilated to output stride 8 or 16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torchvision
from torch import Tensor, nn
from torchvision.models import mobilenetv2, mobilenetv3

BackboneName = Literal["resnet50", "resnet101", "mobilenet_v2", "mobilenet_v3_large"]
Block = Literal["v1.5", "v1"]


class ResNet(nn.Module):
    """ResNet-50 or ResNet-101 without its classifier; parameter names are torchvision's.

    Blocks of type ``v1`` have the stride on the first 1×1 convolution, as in the original paper; blocks of type
    ``v1.5``, torchvision's, have it on the 3×3 convolution. Weights trained with one type work badly with the other.

    Shapes: image (B, 3, H, W) to stages of 256, 512, 1024 and 2048 channels at strides 4, 8, 16 and 16, or at 4, 8, 8
    and 8 with output stride 8.
    """

    widths = (256, 512, 1024, 2048)

    def __init__(self, name: Literal["resnet50", "resnet101"], stride: Literal[8, 16], block: Block) -> None:
        super().__init__()
        build = getattr(torchvision.models, name)
        resnet = build(weights=None, replace_stride_with_dilation=[False, stride == 8, True])
        self.conv1, self.bn1, self.relu, self.maxpool = resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool
        self.layer1, self.layer2, self.layer3, self.layer4 = resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4
        if block == "v1":
            for layer in self._layers():
                first: Any = layer[0]
                first.conv1.stride, first.conv2.stride = first.conv2.stride, first.conv1.stride

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the four stages."""
        x, stages = self.stem(image), []
        for layer in self._layers():
            x = layer(x)
            stages.append(x)
        return tuple(stages)

    def stem(self, image: Tensor) -> Tensor:
        """Return the input of the first block, (B, 64, H/4, W/4)."""
        x: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        return x

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the residual blocks."""
        for layer in self._layers():
            yield from layer

    def _layers(self) -> tuple[nn.Sequential, ...]:
        return self.layer1, self.layer2, self.layer3, self.layer4


class MobileNetV2(nn.Module):
    """MobileNetV2 up to its last inverted residual block; parameter names are torchvision's.

    The 1280-wide convolution after that block is used for classification only and is left out.

    Shapes: image (B, 3, H, W) to stages of 24, 32, 96 and 320 channels at strides 4, 8, 16 and 16, or at 4, 8, 8 and 8
    with output stride 8.
    """

    widths = (24, 32, 96, 320)
    stage_ends = (3, 6, 13, 17)

    def __init__(self, stride: Literal[8, 16]) -> None:
        super().__init__()
        features = torchvision.models.mobilenet_v2(weights=None).features
        self.features = nn.Sequential(*list(features)[: self.stage_ends[-1] + 1])
        if stride == 8:
            self._dilate(7, 13, 2)
        self._dilate(14, 17, 2 * 16 // stride)

    def _dilate(self, first: int, last: int, dilation: int) -> None:
        """Replace the stride of a stage by dilation; the first block keeps the dilation of the stage before."""
        for index in range(first, last + 1):
            rate = dilation // 2 if index == first else dilation
            for conv in self.features[index].modules():
                if isinstance(conv, nn.Conv2d) and conv.kernel_size == (3, 3):
                    conv.stride, conv.dilation, conv.padding = (1, 1), (rate, rate), (rate, rate)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the four stages."""
        x, stages = image, []
        for index, layer in enumerate(self.features):
            x = layer(x)
            if index in self.stage_ends:
                stages.append(x)
        return tuple(stages)

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the inverted residual blocks."""
        return (layer for layer in self.features if isinstance(layer, mobilenetv2.InvertedResidual))


class MobileNetV3(nn.Module):
    """MobileNetV3-Large as torchvision's DeepLabV3 has it, with its 960-wide last convolution; names are torchvision's.

    Shapes: image (B, 3, H, W) to stages of 24, 40, 112 and 960 channels at strides 4, 8, 16 and 16.
    """

    widths = (24, 40, 112, 960)
    stage_ends = (3, 6, 12, 16)

    def __init__(self) -> None:
        super().__init__()
        self.features = torchvision.models.mobilenet_v3_large(weights=None, dilated=True).features

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the four stages."""
        x, stages = image, []
        for index, layer in enumerate(self.features):
            x = layer(x)
            if index in self.stage_ends:
                stages.append(x)
        return tuple(stages)

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the inverted residual blocks."""
        return (layer for layer in self.features if isinstance(layer, mobilenetv3.InvertedResidual))


Backbone = ResNet | MobileNetV2 | MobileNetV3


def make_backbone(name: BackboneName, stride: Literal[8, 16], block: Block) -> Backbone:
    """Return a backbone with random weights; MobileNetV3 has stride 16 alone."""
    if name == "mobilenet_v3_large":
        return MobileNetV3()
    return MobileNetV2(stride) if name == "mobilenet_v2" else ResNet(name, stride, block)
