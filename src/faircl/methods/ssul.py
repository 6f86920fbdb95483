"""SSUL and SSUL-M (NeurIPS 2021): an unknown class beside background, over a frozen network.

L = 1/N · Σ_i Σ_{c ∈ classes ∪ {unknown}} BCE(σ(z_{i,c}), [ỹ_i = c])
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from faircl.config.components import Init
from faircl.labels import BACKGROUND, IGNORE, UNLABELLED
from faircl.loading.batch import Batch
from faircl.methods.base import Method, MethodConfig, Needs, StepContext, Terms
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.seeding import seeded


class SSULConfig(MethodConfig):
    """Hyper-parameters of SSUL."""

    name: str = "ssul"
    init: Init = Field("background", description="start of new classes' classifier where transfer is off")
    transfer: bool = Field(True, description="start new classes' classifier from the unknown class's")
    threshold: float = Field(
        0.7, ge=0, le=1, description="sigmoid of the old network from which its class becomes a label"
    )


class SSUL(Method):
    """Binary cross-entropy of every class and of ``unknown``; later steps train only the newest and the unknown head.

    Unknown are the unlabelled pixels (background, or UNLABELLED where the data has none) that are salient; without
    saliency maps, all of them. Salient are the pixels that ``batch.auxiliary`` marks. In prediction unknown counts as
    background (see ``GrowingClassifier``), so ``targets`` does not separate the two and ``losses`` does. Unlabelled
    pixels that are not salient stay background, or are ignored where there is none.

    On later steps backbone, decoder (with the statistics of their normalisation layers) and old heads are frozen. An
    unlabelled pixel takes the class that the old classifier gives the largest logit of all, unknown included, if that
    is a foreground class and its sigmoid reaches ``threshold``. The old classifier is applied to the frozen
    embedding: no second network runs. Logits are upsampled first.

    Domain steps and the sequential setting hide no class, so there are no pseudo labels. Domain steps add no head: all
    heads are trained, over the frozen backbone and decoder.

    State: ``old_weight`` (K_old + 1, D) and ``old_bias`` (K_old + 1,), the classifier before the step, unknown last;
    empty without pseudo labels; ``unlabelled``, the label of unlabelled pixels.
    """

    Config = SSULConfig
    name = "ssul"
    summary = "background that may be a coming class is 'unknown'; new classifiers start from it, all else is frozen"
    paper = "SSUL, NeurIPS 2021"
    needs = Needs(
        words="nothing but the step's labels; with saliency maps (data.saliency) only what stands out is unknown",
        sigmoid=True,
        auxiliary_map="saliency",
    )
    saved_numbers = ("unlabelled",)

    old_weight: Tensor
    old_bias: Tensor

    def __init__(self, config: SSULConfig, model: Segmenter) -> None:
        # Under transfer ``init`` must not change the background's bias, which is frozen.
        super().__init__(config.model_copy(update={"init": "random"}) if config.transfer else config, model)
        self.config = config
        self.register_buffer("old_weight", torch.zeros(0, model.embedding_width))
        self.register_buffer("old_bias", torch.zeros(0))
        self.unlabelled = UNLABELLED

    @property
    def background(self) -> bool:
        """Whether the data has a background class."""
        return self.unlabelled == BACKGROUND

    def step0_key(self) -> dict[str, object]:
        """Return the name alone: every hyper-parameter, and the memory, acts on later steps only."""
        return {"method": {"name": "ssul"}}

    # Steps

    def begin_step(self, context: StepContext) -> None:
        """Keep the old classifier, grow it from the unknown class and freeze everything else."""
        model, classifier = context.model, context.model.classifier
        self.unlabelled = BACKGROUND if context.background else UNLABELLED
        if classifier.unknown is None:
            with seeded(context.seed, "unknown"):
                classifier.add_unknown(context.background, model.mean.device)
        self._keep_old(context)
        super().begin_step(context)
        if context.step == 0:
            return
        model.backbone.requires_grad_(False)
        model.decoder.requires_grad_(False)
        if context.classes > context.old_classes:
            classifier.heads[:-1].requires_grad_(False)
            if self.config.transfer:
                classifier.init_from_unknown()

    def _keep_old(self, context: StepContext) -> None:
        """Copy the classifier where the step may hide an old class."""
        self.old_weight, self.old_bias = self.old_weight[:0], self.old_bias[:0]
        if context.hides_classes:
            weight, bias = context.model.classifier.weight_and_bias()
            unknown_weight, unknown_bias = context.model.classifier.unknown_weight_and_bias()
            self.old_weight = torch.cat([weight, unknown_weight]).detach().clone()
            self.old_bias = torch.cat([bias, unknown_bias]).detach().clone()

    # Iterations

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Give unlabelled pixels the old classifier's class where its sigmoid reaches the threshold."""
        labels = super().targets(batch, out, old)
        if len(self.old_weight) == 0:
            return labels
        embedding = out.embedding.to(self.old_weight.dtype)  # before dropout
        logits = F.conv2d(embedding, self.old_weight[:, :, None, None], self.old_bias)
        sure = sure_classes(logits, labels.shape[-2:], self.config.threshold, int(self.background))
        return sure.where((batch.labels == self.unlabelled) & (sure != IGNORE), labels)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return the binary cross-entropy of all classes and, as the last, of unknown."""
        if out.unknown is None:  # evaluation mode: the network has merged it into background
            return {"seg": self.binary_cross_entropy(out.logits, targets)}
        unknown = self.unknown(batch, targets)
        logits = torch.cat([out.logits, out.unknown], 1)
        return {"seg": self.binary_cross_entropy(logits, targets.masked_fill(unknown, out.logits.shape[1]))}

    def unknown(self, batch: Batch, targets: Tensor) -> Tensor:
        """Return which pixels (B, H, W) are unknown: unlabelled, without a pseudo label, and salient."""
        bare = targets == (BACKGROUND if self.background else IGNORE)
        unknown = (batch.labels == self.unlabelled) & bare
        return unknown if batch.auxiliary is None else unknown & batch.auxiliary


@torch.no_grad()
def sure_classes(logits: Tensor, size: torch.Size, threshold: float, first: int) -> Tensor:
    """Class of the largest logit at label size where it is foreground and its sigmoid ≥ threshold; elsewhere IGNORE.

    Foreground are the channels from ``first`` on but the last, which is unknown. One image at a time: only one
    (1, K + 1, H, W) exists. Shapes: logits (B, K + 1, h, w); size (H, W); result (B, H, W) int64.
    """

    def one(small: Tensor) -> Tensor:
        best, label = F.interpolate(small, size, mode="bilinear", align_corners=False).max(1)
        foreground = (label >= first) & (label < logits.shape[1] - 1)
        return label.where(foreground & (best.sigmoid() >= threshold), IGNORE)

    return torch.cat([one(logits[k : k + 1]) for k in range(len(logits))])


class SSULMConfig(SSULConfig):
    """Hyper-parameters of SSUL-M: those of SSUL. The memory has a section of its own."""

    name: str = "ssul-m"


class SSULM(SSUL):
    """SSUL with images of earlier steps in every batch, labelled as in their own step."""

    Config = SSULMConfig
    name = "ssul-m"
    summary = "ssul with a memory of old images"
    paper = "SSUL-M, NeurIPS 2021"
    needs = replace(SSUL.needs, words="a replay memory (memory.images)", memory=True)
