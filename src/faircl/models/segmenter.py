"""The one contract of all networks.

A segmenter normalises its image, runs a backbone and a decoder, and classifies the decoder's embedding. It returns
logits at its own stride: whoever needs full resolution upsamples there, once, or fuses the upsampling into a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from faircl.config.components import ModelConfig as ModelConfig
from faircl.errors import UserError
from faircl.models.classifier import GrowingClassifier

Part = Literal["backbone", "decoder", "old_classifier", "new_classifier"]
Stages = tuple[Tensor, ...]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class SegOutput(NamedTuple):
    """What a network computes for a batch.

    Shapes: logits (B, C, h, w) at network stride; embedding (B, D, h, w), the classifier's input before dropout;
    stages, the backbone's feature maps from fine to coarse; attentions, where the network has them and they were
    asked for, one (B, heads, queries, keys) per block; unknown (B, 1, h, w), the logit of classes yet to come, in
    training mode where the classifier has a head for it.
    """

    logits: Tensor
    embedding: Tensor
    stages: Stages
    attentions: Stages | None = None
    unknown: Tensor | None = None


class Segmenter(nn.Module):
    """Backbone, decoder and growing classifier under one forward.

    A network supplies ``backbone`` (image to stages), ``decoder`` (stages to embedding), ``embedding_width`` and
    ``stage_widths``, and calls ``super().__init__`` with them.
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
        """Return stages, attentions where they are asked for, and embedding of a batch of images in [0, 1]."""
        stages, maps = self.features((image - self.mean) / self.std, attentions)
        return stages, maps, self.decoder(stages)

    def features(self, image: Tensor, attentions: bool) -> tuple[Stages, Stages | None]:
        """Return stages and, where there are any and they are asked for, attentions of a normalised image."""
        return tuple(self.backbone(image)), None

    def parts(self) -> Iterator[tuple[Part, nn.Parameter]]:
        """Yield every parameter with the part it belongs to, for learning rates per part."""
        for parameter in self.backbone.parameters():
            yield "backbone", parameter
        for parameter in self.decoder.parameters():
            yield "decoder", parameter
        for head in self.classifier.heads:
            part: Part = "new_classifier" if head is self.classifier.heads[-1] else "old_classifier"
            for parameter in head.parameters():
                yield part, parameter
        if self.classifier.unknown is not None:
            for parameter in self.classifier.unknown.parameters():
                yield "new_classifier", parameter

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the modules that gradient checkpointing may compute twice instead of remembering: none by default."""
        yield from ()

    def load_pretrained(self) -> None:
        """Load the weights that the configuration names; a network that knows none has nothing to load."""

    def check_plain_classifier(self) -> None:
        """Raise an error if the classifier is not the one layer that a plain network has."""
        if self.classifier.unknown is not None:
            raise UserError(
                "The network has a head for unknown pixels, which plain networks have no place for; without it they "
                "would compute something else, so there is nothing to export to."
            )

    def library_state(self) -> dict[str, Tensor]:
        """Return the weights under the names of the plain network that torchvision or transformers has."""
        raise UserError(f"Network '{self.name}' as configured has no counterpart in torchvision or transformers.")
