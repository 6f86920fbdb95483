"""SDR (CVPR 2021): the unbiased losses of MiB, and a latent space whose classes stay in place, close and apart.

L = CE + λ_distill·KD + λ_match·L_match + λ_attract·L_attract + λ_repel·L_repel + λ_sparse·L_sparse
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from faircl.config.components import Init
from faircl.labels import BACKGROUND, IGNORE, UNLABELLED
from faircl.loading.batch import Batch
from faircl.losses.distillation import distillation, unbiased_distillation
from faircl.losses.latent import attraction, class_sums, matching, repulsion, sparsity
from faircl.methods.base import Method, MethodConfig, StepContext, Terms, counted, to_stride
from faircl.models.segmenter import Segmenter, SegOutput


class SDRConfig(MethodConfig):
    """Hyper-parameters of SDR. A weight of zero switches its term off."""

    name: str = "sdr"
    init: Init = Field("random", description="start of new classes' classifier: random, background or prototype")
    distill: float = Field(100.0, ge=0, description="weight of the distillation of logits; 100 was published")
    match: float = Field(0.01, ge=0, description="weight of prototype matching; 0.01 was published")
    attract: float = Field(0.001, ge=0, description="weight of the attraction to prototypes; 0.001 was published")
    repel: float = Field(0.001, ge=0, description="weight of the repulsion of class means; 0.001 was published")
    sparse: float = Field(0.001, ge=0, description="weight of the sparsity of features; 0.001 was published")


class SDR(Method):
    """Terms on the encoder's output, from the second step on; the first is plain training that fills the prototypes.

    State: ``prototypes`` (K, D), the mean feature of every class but the background over all batches that labelled it,
    taken while the network was changing; ``count`` (K,), the pixels in it; ``facts``, the step's old classes, its
    label of unlabelled pixels, whether the data has a background class and whether it is a domain step; these are also
    plain numbers, so that reading them never waits for a device.

    Background has no prototype: at later steps old classes hide in it. It does take part in repulsion, where a step of
    one class has nothing else to be pushed from. Domain steps hide nothing, so there is nothing to match.
    """

    Config = SDRConfig
    name = "sdr"
    summary = "MiB's losses, and encoder features matched to prototypes, drawn together by class, apart and sparse"
    paper = "SDR, CVPR 2021"
    needs = "a frozen copy of the old network, run on every batch; a prototype per class"

    prototypes: Tensor
    count: Tensor
    facts: Tensor

    def __init__(self, config: SDRConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config
        self.register_buffer("prototypes", torch.zeros((0, model.stage_widths[-1])))
        self.register_buffer("count", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("facts", torch.tensor([0, UNLABELLED, 0, 0]))
        self.restored()

    def restored(self) -> None:
        """Read the step's facts back."""
        self.old_classes, self.unlabelled_label, self.background, self.domain = self.facts.tolist()

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old model's output where a term reads it."""
        matches = self.config.match > 0 and not context.domain
        return context.step > 0 and (self.config.distill > 0 or matches)

    def step0_key(self) -> dict[str, object]:
        """Return the name alone: the first step is plain training, which no hyper-parameter touches."""
        return {"method": {"name": self.name}}

    def begin_step(self, context: StepContext) -> None:
        """Grow the classifier and the prototypes."""
        facts = [context.old_classes, context.unlabelled, int(context.background), int(context.domain)]
        self.facts.copy_(torch.tensor(facts))
        self.restored()
        super().begin_step(context)
        new = context.classes - len(self.count)
        self.prototypes = torch.cat([self.prototypes, self.prototypes.new_zeros((new, self.prototypes.shape[1]))])
        self.count = torch.cat([self.count, self.count.new_zeros(new)])

    # Iterations

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return the terms of the step whose weight is not zero."""
        hidden = self.unlabelled_label == BACKGROUND and not self.domain
        terms = {"seg": self.cross_entropy(out.logits, targets, grouped=self.old_classes if hidden else 0)}
        if self.old_classes == 0:
            return terms
        c = self.config
        features = out.stages[-1]
        labels = to_stride(targets, features.shape[-2:])
        ready, classes = self.count > 0, len(self.count)
        if c.distill > 0:
            terms["distill"] = c.distill * self._distill(batch, out, old)
        if c.match > 0 and not self.domain:
            terms["match"] = c.match * matching(features, self._old_labels(batch, out, old), self.prototypes, ready)
        if c.attract > 0:
            terms["attract"] = c.attract * attraction(features, labels, self.prototypes, ready)
        if c.repel > 0:
            terms["repel"] = c.repel * repulsion(features, labels, classes)
        if c.sparse > 0:
            terms["sparse"] = c.sparse * sparsity(features, labels, classes)
        return terms

    def _distill(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        assert old is not None, "the engine runs the teacher that needs_teacher asks for"
        loss = unbiased_distillation if self.background and not self.domain else distillation
        return loss(out.logits, old.logits, counted(batch, out.logits.shape[-2:]))

    def _old_labels(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Old classes at the encoder's stride (B, h, w): the old model's word where unlabelled, else the label.

        Labels of old classes are there only under the sequential setting. What the old model calls background has no
        prototype and so is not matched.
        """
        assert old is not None, "the engine runs the teacher that needs_teacher asks for"
        size = out.stages[-1].shape[-2:]
        labels = to_stride(batch.labels, size)
        labels = labels.where(labels != self.unlabelled_label, to_stride(old.logits.argmax(1), size))
        return labels.where(labels < self.old_classes, IGNORE)

    @torch.no_grad()
    def observe(self, batch: Batch, out: SegOutput, targets: Tensor, iteration: int) -> None:
        """Take the batch into the running means: p_c ← p_c + (Σ_{y_i=c} f_i − N_c·p_c) / (n_c + N_c)."""
        features = out.stages[-1]
        labels = to_stride(targets, features.shape[-2:])
        if self.background:
            labels = labels.masked_fill(labels == BACKGROUND, IGNORE)
        sums = class_sums(features, labels, len(self.count))
        self.count = self.count + sums.pixels
        change = sums.total - sums.pixels[:, None] * self.prototypes
        self.prototypes = (self.prototypes + change / self.count.clamp_min(1)[:, None]).to(self.prototypes.dtype)
