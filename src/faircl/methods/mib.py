"""MiB, modelling the background: losses that know which classes a step calls background. Cermelli et al., CVPR 2020."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from faircl.labels import BACKGROUND
from faircl.loading.batch import Batch
from faircl.losses.distillation import distillation, unbiased_distillation
from faircl.methods.base import MethodConfig, StepContext, TeacherMethod, Terms
from faircl.methods.feature_grid import valid_pixels
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

    Without a background class unlabelled pixels are ignored and the distillation is plain. It is plain on domain steps
    too, where every class is labelled.

    State: ``grouped``, how many channels a background label stands for; ``background``, whether the distillation is
    unbiased.
    """

    Config = MiBConfig
    name = "mib"
    summary = "cross-entropy and distillation in which background may be an old or a new class"
    paper = "MiB, CVPR 2020"
    saved_numbers: ClassVar[tuple[str, ...]] = ("grouped", "background")

    def __init__(self, config: MiBConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config
        self.grouped = 0
        self.background = False

    def begin_step(self, context: StepContext) -> None:
        """Grow the classifier; set which channels a background label stands for."""
        hides = context.step > 0 and context.unlabelled == BACKGROUND
        self.grouped = context.old_classes if hides else 0
        self.background = context.background and not context.domain
        super().begin_step(context)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return unbiased cross-entropy and, where there is a teacher, unbiased distillation."""
        terms = {"seg": self.cross_entropy(out.logits, targets, grouped=self.grouped)}
        if old is not None and self.config.distill > 0:
            valid = valid_pixels(batch, out.logits.shape[-2:])
            distil = unbiased_distillation if self.background else distillation
            terms["distill"] = self.config.distill * distil(out.logits, old.logits, valid)
        return terms
