"""A small residual network that trains on a CPU in under a minute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from faircl.models.segmenter import ModelConfig, Segmenter


class SmallConfig(ModelConfig):
    """Hyper-parameters of the small network."""

    name: str = "small"
    width: int = Field(
        24, ge=4, multiple_of=4, description="channels of the first stage; later stages have 2× and 3× as many"
    )
    embedding: int = Field(32, ge=2, description="channels of the embedding before the classifier")
    norm: Literal["batch", "group"] = Field("batch", description="normalisation layers")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout before the classifier")


class Small(Segmenter):
    """Three residual stages at strides 2, 4 and 8, and a stride-4 decoder over the last two."""

    Config = SmallConfig
    name = "small"
    summary = "small residual network at stride 4; trains on a CPU"

    backbone: _Backbone

    def __init__(self, config: SmallConfig) -> None:
        w = config.width
        widths = (w, 2 * w, 3 * w)
        super().__init__(
            _Backbone(widths, config.norm),
            _Decoder(widths, config.embedding, config.norm),
            embedding_width=config.embedding,
            stage_widths=widths,
            dropout=config.dropout,
        )

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the two stages that consist of residual blocks."""
        yield from (self.backbone.stage4, self.backbone.stage8)


class _Backbone(nn.Module):
    def __init__(self, widths: tuple[int, int, int], norm: str) -> None:
        super().__init__()
        a, b, c = widths
        self.stem = _conv_norm(3, a, norm, stride=2)
        self.stage4 = nn.Sequential(_conv_norm(a, b, norm, stride=2), _Residual(b, norm))
        self.stage8 = nn.Sequential(
            _conv_norm(b, c, norm, stride=2), _Residual(c, norm), _Residual(c, norm, dilation=2)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        s2 = self.stem(image)
        s4 = self.stage4(s2)
        return s2, s4, self.stage8(s4)


class _Decoder(nn.Module):
    """Adds the upsampled stride-8 stage to the stride-4 stage and projects the sum to the embedding."""

    def __init__(self, widths: tuple[int, int, int], embedding: int, norm: str) -> None:
        super().__init__()
        _, b, c = widths
        self.coarse = nn.Conv2d(c, b, 1)
        self.mix = _conv_norm(b, b, norm)
        self.project = nn.Conv2d(b, embedding, 1)

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        _, fine, coarse = stages
        up = F.interpolate(self.coarse(coarse), fine.shape[-2:], mode="bilinear", align_corners=False)
        embedding: Tensor = self.project(self.mix(fine + up))
        return embedding


class _Residual(nn.Module):
    def __init__(self, width: int, norm: str, dilation: int = 1) -> None:
        super().__init__()
        self.first = _conv_norm(width, width, norm, dilation=dilation)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = _norm(norm, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.second(self.first(x))))


def _conv_norm(inputs: int, outputs: int, norm: str, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False)
    return nn.Sequential(conv, _norm(norm, outputs), nn.ReLU(inplace=True))


def _norm(kind: str, width: int) -> nn.Module:
    return nn.BatchNorm2d(width) if kind == "batch" else nn.GroupNorm(4, width)
