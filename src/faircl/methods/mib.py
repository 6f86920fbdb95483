"""MiB, modelling the background: at every step background means something else. Cermelli et al., CVPR 2020."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from faircl.labels import BACKGROUND
from faircl.loading.batch import Batch
from faircl.losses.distillation import distillation, unbiased_distillation
from faircl.methods.base import MethodConfig, StepContext, TeacherMethod, Terms, counted
from faircl.models.segmenter import Segmenter, SegOutput


class MiBConfig(MethodConfig):
    """Hyper-parameters of MiB."""

    name: str = "mib"
    distill: float = Field(10.0, ge=0, description="weight of the distillation; 100 was published for VOC 15-1")


class MiB(TeacherMethod):
    """L = CE_unbiased(z, y) + λ · KD_unbiased(z, z_old).

    In the cross-entropy a pixel labelled background may be background or any old class (Eqn 6); in the distillation the
    old network's background may be background or any new class (Eqn 8-9). New classes start from the background
    (``init: background``), so that the old network's background probability is shared with them.

    Without a background class unlabelled pixels do not count and the distillation is plain; so it is on domain steps,
    which hide nothing. State: ``facts``, how many channels a background label stands for, and whether there is one.
    """

    Config = MiBConfig
    name = "mib"
    summary = "cross-entropy and distillation in which background may be an old or a new class"
    paper = "MiB, CVPR 2020"
    uses_stages = False

    facts: Tensor

    def __init__(self, config: MiBConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config
        self.register_buffer("facts", torch.zeros(2, dtype=torch.int64))
        self.restored()

    def restored(self) -> None:
        """Read the step's facts back."""
        self.grouped, self.background = self.facts.tolist()

    def begin_step(self, context: StepContext) -> None:
        """Grow the classifier and note what background stands for."""
        hides = context.step > 0 and context.unlabelled == BACKGROUND
        shared = context.background and not context.domain
        self.facts.copy_(torch.tensor([context.old_classes if hides else 0, int(shared)]))
        self.restored()
        super().begin_step(context)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return unbiased cross-entropy and, where there is a teacher, unbiased distillation."""
        terms = {"seg": self.cross_entropy(out.logits, targets, grouped=self.grouped)}
        if old is not None and self.config.distill > 0:
            valid = counted(batch, out.logits.shape[-2:])
            distil = unbiased_distillation if self.background else distillation
            terms["distill"] = self.config.distill * distil(out.logits, old.logits, valid)
        return terms
