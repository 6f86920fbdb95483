"""LwF-MC: a binary classifier per class, old ones distilled. iCaRL without its memory, CVPR 2017."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from faircl.config.components import Init
from faircl.loading.batch import Batch
from faircl.losses.distillation import binary_distillation
from faircl.methods.base import MethodConfig, TeacherMethod, Terms
from faircl.methods.feature_grid import valid_pixels
from faircl.models.segmenter import Segmenter, SegOutput


class LwFMCConfig(MethodConfig):
    """Hyper-parameters of LwF-MC."""

    name: str = "lwf-mc"
    init: Init = Field("random", description="start of new classes' classifier: random, background or prototype")
    distill: float = Field(10.0, ge=0, description="weight of the distillation, a sum over old classes")


class LwFMC(TeacherMethod):
    """L = Σ_c BCE(σ(z_c), [y = c]) + λ · Σ_{c old} BCE(σ(z_c), σ(z_old,c)), means over pixels.

    The class with the largest logit is the class with the largest sigmoid.
    """

    Config = LwFMCConfig
    name = "lwf-mc"
    summary = "binary cross-entropy per class, old classes by the old network's probability"
    paper = "LwF-MC (iCaRL), CVPR 2017"
    needs = replace(TeacherMethod.needs, sigmoid=True)

    def __init__(self, config: LwFMCConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return binary cross-entropy and, where there is a teacher, distillation."""
        terms = {"seg": self.binary_cross_entropy(out.logits, targets)}
        if old is not None and self.config.distill > 0:
            valid = valid_pixels(batch, out.logits.shape[-2:])
            summed = old.logits.shape[1] * binary_distillation(out.logits, old.logits, valid)
            terms["distill"] = self.config.distill * summed
        return terms
