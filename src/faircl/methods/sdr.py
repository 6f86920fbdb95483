"""SDR (CVPR 2021): the unbiased losses of MiB, and terms that keep classes in feature space in place and apart.

L = CE + λ_distill·KD + λ_match·L_match + λ_attract·L_attract + λ_repel·L_repel + λ_sparse·L_sparse
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from faircl.config.components import Init
from faircl.labels import BACKGROUND, IGNORE, UNLABELLED
from faircl.loading.batch import Batch
from faircl.losses.distillation import distillation, unbiased_distillation
from faircl.losses.latent_space import attraction, class_sums, matching, repulsion, sparsity
from faircl.methods.base import MethodConfig, StepContext, TeacherMethod, Terms
from faircl.methods.feature_grid import to_stride, valid_pixels
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


class SDR(TeacherMethod):
    """Terms on the encoder's output, from the second step on; the first is plain training that fills the prototypes.

    Background has no prototype: at later steps it includes old classes. It takes part in repulsion, where a step with
    one class has no other class to be pushed from. Domain steps label every class, so there is nothing to match.

    State: ``prototypes`` (K, D), the mean feature of every class but the background over all batches that labelled it,
    taken while the network trained; ``count`` (K,), the pixels in it; the step's ``old_classes``, its
    ``unlabelled_label``, whether the data has a ``background`` class and whether it is a ``domain`` step.
    """

    Config = SDRConfig
    name = "sdr"
    summary = "MiB's losses, and encoder features matched to prototypes, drawn together by class, apart and sparse"
    paper = "SDR, CVPR 2021"
    needs = replace(TeacherMethod.needs, words=f"{TeacherMethod.needs.words}; a prototype per class", stages=True)
    saved_numbers = ("old_classes", "unlabelled_label", "background", "domain")

    prototypes: Tensor
    count: Tensor

    def __init__(self, config: SDRConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config
        self.register_buffer("prototypes", torch.zeros((0, model.stage_widths[-1])))
        self.register_buffer("count", torch.zeros(0, dtype=torch.int64))
        self.old_classes, self.unlabelled_label = 0, UNLABELLED
        self.background, self.domain = False, False

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old network where a term uses it."""
        matches = self.config.match > 0 and not context.domain
        return super().needs_teacher(context) and (self.config.distill > 0 or matches)

    def step0_key(self) -> dict[str, object]:
        """Return the name alone: every hyper-parameter acts on later steps only."""
        return {"method": {"name": self.name}}

    def begin_step(self, context: StepContext) -> None:
        """Grow the classifier and the prototypes."""
        self.old_classes, self.unlabelled_label = context.old_classes, context.unlabelled
        self.background, self.domain = context.background, context.domain
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
        return loss(out.logits, old.logits, valid_pixels(batch, out.logits.shape[-2:]))

    def _old_labels(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Return old classes at the encoder's stride (B, h, w): predicted by the old network where unlabelled.

        Only the sequential setting labels old classes. What the old network predicts as background is not matched,
        because background has no prototype.
        """
        assert old is not None, "the engine runs the teacher that needs_teacher asks for"
        size = out.stages[-1].shape[-2:]
        labels = to_stride(batch.labels, size)
        labels = labels.where(labels != self.unlabelled_label, to_stride(old.logits.argmax(1), size))
        return labels.where(labels < self.old_classes, IGNORE)

    @torch.no_grad()
    def observe(self, batch: Batch, out: SegOutput, targets: Tensor, iteration: int) -> None:
        """Add the batch to the running means: p_c ← p_c + (Σ_{y_i=c} f_i − N_c·p_c) / (n_c + N_c)."""
        features = out.stages[-1]
        labels = to_stride(targets, features.shape[-2:])
        if self.background:
            labels = labels.masked_fill(labels == BACKGROUND, IGNORE)
        sums = class_sums(features, labels, len(self.count))
        self.count = self.count + sums.pixels
        change = sums.total - sums.pixels[:, None] * self.prototypes
        self.prototypes = (self.prototypes + change / self.count.clamp_min(1)[:, None]).to(self.prototypes.dtype)
