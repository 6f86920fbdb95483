"""The base class of all networks.

A segmenter normalises its image, runs a backbone and a decoder, and classifies the decoder's embedding. It returns
logits at network stride; evaluation and losses upsample them where full resolution is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from faircl.config.components import ModelConfig as ModelConfig
from faircl.errors import UserError
from faircl.models.classifier import GrowingClassifier

ParameterGroup = Literal["backbone", "decoder", "old_classifier", "new_classifier"]
Stages = tuple[Tensor, ...]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class SegOutput(NamedTuple):
    """The outputs of a network for a batch.

    Shapes: logits (B, C, h, w) at network stride; embedding (B, D, h, w), the classifier's input before dropout;
    stages, the backbone's feature maps from fine to coarse; attentions, (B, heads, queries, keys) per block if they
    were requested; unknown (B, 1, h, w), the logit of future classes, in training mode if the classifier has a head for
    it.
    """

    logits: Tensor
    embedding: Tensor
    stages: Stages
    attentions: Stages | None = None
    unknown: Tensor | None = None


class Segmenter(nn.Module):
    """A network of backbone, decoder and growing classifier.

    A subclass calls ``super().__init__`` with its ``backbone`` (image to stages), its ``decoder`` (stages to
    embedding), ``embedding_width`` and ``stage_widths``.
    """

    Config: ClassVar[type[ModelConfig]] = ModelConfig
    name: ClassVar[str]
    summary: ClassVar[str]
    has_attentions: ClassVar[bool] = False

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        decoder: nn.Module,
        *,
        embedding_width: int,
        stage_widths: Sequence[int],
        dropout: float = 0.0,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.decoder = decoder
        self.dropout = nn.Dropout2d(dropout)
        self.classifier = GrowingClassifier(embedding_width)
        self.embedding_width = embedding_width
        self.stage_widths = tuple(stage_widths)
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, image: Tensor, attentions: bool = False) -> SegOutput:
        """Segment a batch of images (B, 3, H, W) in [0, 1]."""
        if attentions and not self.has_attentions:
            raise ValueError(f"network '{self.name}' has no attentions")
        stages, maps, embedding = self.embed(image, attentions)
        dropped = self.dropout(embedding)
        unknown = self.classifier.unknown_logit(dropped)
        return SegOutput(self.classifier(dropped), embedding, stages, maps, unknown)

    def embed(self, image: Tensor, attentions: bool = False) -> tuple[Stages, Stages | None, Tensor]:
        """Return stages, attentions (None unless requested) and embedding of images (B, 3, H, W) in [0, 1]."""
        stages, maps = self.features((image - self.mean) / self.std, attentions)
        return stages, maps, self.decoder(stages)

    def features(self, image: Tensor, attentions: bool) -> tuple[Stages, Stages | None]:
        """Return stages and attentions (None unless supported and requested) of a normalised image."""
        return tuple(self.backbone(image)), None

    def parameter_groups(self) -> Iterator[tuple[ParameterGroup, nn.Parameter]]:
        """Yield the name of its group and every parameter; groups can have different learning rates."""
        for parameter in self.backbone.parameters():
            yield "backbone", parameter
        for parameter in self.decoder.parameters():
            yield "decoder", parameter
        for head in self.classifier.heads:
            group: ParameterGroup = "new_classifier" if head is self.classifier.heads[-1] else "old_classifier"
            for parameter in head.parameters():
                yield group, parameter
        if self.classifier.unknown is not None:
            for parameter in self.classifier.unknown.parameters():
                yield "new_classifier", parameter

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the blocks that can be checkpointed or compiled one by one; none by default."""
        yield from ()

    def load_pretrained(self) -> None:
        """Load the weights named in the configuration; does nothing by default."""

    def check_plain_classifier(self) -> None:
        """Raise ``UserError`` if the classifier is not a convolution alone, as other libraries' networks have it."""
        if self.classifier.unknown is not None:
            raise UserError(
                "The network has a head for unknown pixels, which networks of torchvision and transformers do not "
                "have; without it they would compute something else, so this network cannot be exported."
            )
        if self.classifier.merged is not None:
            raise UserError(
                "The network has merged classes, whose probability is a sum over channels, which networks of "
                "torchvision and transformers cannot compute, so this network cannot be exported."
            )

    def export_state_dict(self) -> dict[str, Tensor]:
        """Return a state dict for the same network of torchvision or transformers; ``UserError`` if there is none."""
        raise UserError(f"Network '{self.name}' as configured has no counterpart in torchvision or transformers.")
