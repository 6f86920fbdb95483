"""PLOP (CVPR 2021): pseudo labels for unlabelled pixels, and local POD on features of every depth.

L = 1/N · Σ_i f_{b(i)} · CE(z_i, ỹ_i) + √(|seen| / |new|) / L · ( λ_pod · Σ_l POD(l) + λ_logits · POD(logits) )
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from faircl.labels import UNLABELLED
from faircl.loading.batch import Batch
from faircl.losses.pod import like_old_logits, local_pod
from faircl.methods.assignment import Assignment, assign_by_softmax
from faircl.methods.base import MethodConfig, ScannedBatch, StepContext, TeacherMethod, Terms
from faircl.methods.entropy_labels import EntropyThresholds, PublishedEntropyThresholds, kept_share, sure_labels
from faircl.models.segmenter import Segmenter, SegOutput

Doubt = Literal["normalised", "published"]
DOUBT = (
    "normalised: entropy over its largest, and its median, as PLOP's paper says; published: as the public code "
    "computes both, which rejects fewer pixels, on ADE20K none"
)


class PLOPConfig(MethodConfig):
    """Hyper-parameters of PLOP, with its values for Pascal VOC. A weight of zero switches its term off."""

    name: str = "plop"
    pod: float = Field(0.01, ge=0, description="λ_pod, weight of POD on the backbone's stages and the embedding")
    pod_logits: float = Field(5e-4, ge=0, description="λ_logits, weight of POD on the logits")
    threshold: float = Field(
        0.001,
        ge=0,
        le=1,
        description="least value of τ_c, the doubt (entropy over its largest) below which pixels count",
    )
    doubt: Doubt = Field("normalised", description=DOUBT)


class PLOP(TeacherMethod):
    """Cross-entropy with pseudo labels, and local POD from the second step on.

    An unlabelled pixel takes the old network's class c where its doubt u < τ_c, and is ignored elsewhere; τ_c is the
    median doubt over the step's images, at least ``threshold``, or what the public code computes in its place
    (``doubt``: published). f_b is the share of image b's unlabelled pixels that
    were kept: images that the old network is unsure about weigh less. POD compares the L maps of a network: its
    stages, its embedding and, with the new classes added to the background's, its logits.

    On domain steps no class is new and every pixel has its label: there is only cross-entropy and POD, with
    √(|seen| / |new|) set to 1. Where a step hides no class (sequential setting) there are no pseudo labels either.

    State: ``thresholds`` τ (K_old,), empty without pseudo labels; the step's ``old_classes``, all its ``classes``, its
    ``unlabelled_label``, whether it has ``pseudo`` labels and whether the data has a ``background`` class.
    """

    Config = PLOPConfig
    name = "plop"
    summary = "pseudo labels where the old network is sure; row and column means of features are kept"
    paper = "PLOP, CVPR 2021"
    needs = replace(TeacherMethod.needs, stages=True)
    saved_numbers = ("old_classes", "classes", "unlabelled_label", "pseudo", "background")

    thresholds: Tensor

    def __init__(self, config: PLOPConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config
        self.register_buffer("thresholds", torch.zeros(0))
        self.old_classes, self.classes, self.unlabelled_label = 0, 0, UNLABELLED
        self.pseudo, self.background = False, False

    def step0_key(self) -> dict[str, object]:
        """Return the name alone: every hyper-parameter acts on later steps only."""
        return {"method": {"name": self.config.name}}

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old network where POD or pseudo labels use it."""
        pod = self.config.pod > 0 or self.config.pod_logits > 0
        return super().needs_teacher(context) and (pod or self.needs_scan(context))

    def begin_step(self, context: StepContext) -> None:
        """Set the thresholds with the old network, then grow the classifier."""
        self.old_classes, self.classes, self.unlabelled_label = context.old_classes, context.classes, context.unlabelled
        self.pseudo, self.background = self.needs_scan(context), context.background
        self._doubts = self._empty_doubts(context.old_classes if self.pseudo else 0)
        super().begin_step(context)
        self.thresholds = self._doubts.gather(self.config.threshold) if self.pseudo else self.thresholds.new_zeros(0)
        del self._doubts  # its histogram may be large

    def _empty_doubts(self, old_classes: int) -> EntropyThresholds:
        if self.config.doubt == "published":
            return PublishedEntropyThresholds(old_classes, self.classes, self.thresholds.device)
        return EntropyThresholds(old_classes, self.thresholds.device)

    def needs_scan(self, context: StepContext) -> bool:
        """Ask for a scan where the step's images may hide an old class."""
        return context.hides_classes

    def scan_batch(self, scanned: ScannedBatch, context: StepContext) -> None:
        """Add the old network's doubt about unlabelled pixels to the histogram."""
        if self.pseudo:
            assignment = self._assignment(scanned.output, scanned.labels.shape[-2:])
            self._doubts.add(assignment, scanned.labels == context.unlabelled)

    # Iterations

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Label unlabelled pixels by the old network where its doubt is below the threshold; ignore the others."""
        labels = super().targets(batch, out, old)
        if not self.pseudo:
            return labels
        assert old is not None, "the engine runs the teacher that needs_teacher asks for"
        pseudo = sure_labels(self._assignment(old, batch.labels.shape[-2:]), self.thresholds)
        return labels.where(batch.labels != self.unlabelled_label, pseudo)

    def _assignment(self, old: SegOutput, size: torch.Size) -> Assignment:
        return assign_by_softmax(old.logits[:, : self.old_classes], size, doubt=True)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return cross-entropy and, where there is a teacher, POD."""
        terms = {"seg": self.cross_entropy(out.logits, targets, pixel_weight=self._image_weight(batch, targets))}
        if old is None:
            return terms
        # Logits count among the L maps even where their weight is 0: the weight of the other maps must not change.
        scale = self._growth() / (len(out.stages) + 2)
        if self.config.pod > 0:
            pairs = zip((*out.stages, out.embedding), (*old.stages, old.embedding), strict=True)
            terms["pod"] = self.config.pod * scale * torch.stack([local_pod(new, was) for new, was in pairs]).sum()
        if self.config.pod_logits > 0:
            logits = like_old_logits(out.logits, self.old_classes, self.background)
            terms["pod_logits"] = self.config.pod_logits * scale * local_pod(logits, old.logits)
        return terms

    def _image_weight(self, batch: Batch, targets: Tensor) -> Tensor | None:
        """Return f of every image, expanded to its pixels (B, H, W)."""
        if not self.pseudo:
            return None
        share = kept_share(targets, batch.labels == self.unlabelled_label)
        return share[:, None, None].expand(targets.shape)

    def _growth(self) -> float:
        """Return √(|seen| / |new|), or 1 where no class is new."""
        new = self.classes - self.old_classes
        return float((self.classes / new) ** 0.5) if new > 0 else 1.0
