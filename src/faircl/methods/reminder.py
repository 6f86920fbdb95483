"""REMINDER (CVPR 2022): PLOP, and on pixels of a new class distillation of the old classes similar to it.

L = L_PLOP + λ_csw · CSW-KD
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from faircl.loading.batch import Batch
from faircl.losses.latent_space import class_sums
from faircl.losses.similarity_distillation import class_similarity, similarity_distillation
from faircl.methods.base import StepContext, Terms
from faircl.methods.class_means import ClassMeans
from faircl.methods.feature_grid import to_stride
from faircl.methods.plop import PLOP, PLOPConfig
from faircl.models.segmenter import Segmenter, SegOutput


class REMINDERConfig(PLOPConfig):
    """Hyper-parameters of REMINDER: PLOP's, and those of its distillation. A weight of zero switches its term off."""

    name: str = "reminder"
    similarity: float = Field(0.5, ge=0, description="λ_csw, weight of the distillation by class similarity")
    temperature: float = Field(3.0, gt=0, description="T, which softens both networks' distributions there")
    delta: float = Field(
        1.0, ge=0, description="δ: an old class with a similarity below δ times the average is left out; 0 keeps all"
    )


class REMINDER(PLOP):
    """PLOP with class-similarity-weighted distillation (CSW-KD), from the second step on.

    Old classes similar to a new one are forgotten first. On pixels labelled with a new class y, the old network's
    probability of old class c is distilled with weight r_{y,c}: the softmax over old classes of the cosine of their
    prototypes p_c and μ_y, y's mean embedding in the batch. p_c is the mean embedding of c over the images of the step
    that labelled it, by the network after that step: every step ends with a scan of its images. Background keeps the
    prototype of the first step, because at later steps it includes old classes.

    Without a background class only PLOP's part differs. Domain steps have no new class and only PLOP's terms.

    State: PLOP's; ``prototypes`` p (K, D) and ``ready`` (K,), whether a class had a pixel.
    """

    Config = REMINDERConfig
    name = "reminder"
    summary = "PLOP, and on a new class's pixels distillation of the old classes that look like it"
    paper = "REMINDER, CVPR 2022"
    needs = replace(PLOP.needs, words=f"{PLOP.needs.words}; a prototype per class, from a scan of a step's images")

    config: REMINDERConfig
    prototypes: Tensor
    ready: Tensor

    def __init__(self, config: REMINDERConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.register_buffer("prototypes", torch.zeros((0, model.embedding_width)))
        self.register_buffer("ready", torch.zeros(0, dtype=torch.bool))

    def step0_key(self) -> dict[str, object]:
        """Return the name and whether the first step takes prototypes; other hyper-parameters act on later steps."""
        return {"method": {"name": self.config.name}, "prototypes": self.config.similarity > 0}

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old network where PLOP or CSW-KD uses it."""
        distils = self.config.similarity > 0 and context.step > 0 and context.classes > context.old_classes
        return distils or super().needs_teacher(context)

    def end_step(self, context: StepContext) -> None:
        """Take the prototypes of the step's new classes."""
        super().end_step(context)
        known = len(self.ready)
        if self.config.similarity == 0 or context.classes == known:
            return
        context.model.eval()
        means = ClassMeans(context)
        for scanned in context.scan():
            means.add(scanned)
        means.gather()
        found = means.classes()[known:].to(self.prototypes)
        seen = found.isfinite().all(1)
        self.prototypes = torch.cat([self.prototypes, found.where(seen[:, None], 0.0)])
        self.ready = torch.cat([self.ready, seen])

    # Iterations

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return PLOP's terms and, where the step has new classes, CSW-KD."""
        terms = super().losses(batch, out, old, targets)
        if old is not None and self.config.similarity > 0 and self.classes > self.old_classes:
            terms["similarity"] = self.config.similarity * self._distil(out, old, targets)
        return terms

    def _distil(self, out: SegOutput, old: SegOutput, targets: Tensor) -> Tensor:
        """Return CSW-KD, with the similarities of this batch."""
        labels = to_stride(targets, out.embedding.shape[-2:])
        means = class_sums(out.embedding.detach(), labels, self.classes).means()[self.old_classes :]
        similarity = class_similarity(means, self.prototypes, self.ready, self.config.delta)
        at_logits = to_stride(targets, out.logits.shape[-2:])
        return similarity_distillation(out.logits, old.logits, at_logits, similarity, self.config.temperature)
