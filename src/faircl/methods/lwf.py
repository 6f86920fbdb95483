"""LwF, learning without forgetting: the old network's logits of old classes are distilled.

Li and Hoiem, ECCV 2016; for segmentation as MiB's authors run it.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from faircl.config.components import Init
from faircl.loading.batch import Batch
from faircl.losses.distillation import distillation
from faircl.methods.base import MethodConfig, TeacherMethod, Terms
from faircl.methods.feature_grid import valid_pixels
from faircl.models.segmenter import Segmenter, SegOutput


class LwFConfig(MethodConfig):
    """Hyper-parameters of LwF."""

    name: str = "lwf"
    init: Init = Field("random", description="start of new classes' classifier: random, background or prototype")
    distill: float = Field(100.0, ge=0, description="weight of the distillation of logits, a mean over old classes")


class LwF(TeacherMethod):
    """L = CE(z, y) + λ · KD(z, z_old); pixels of old classes are labelled background in y."""

    Config: ClassVar[type[MethodConfig]] = LwFConfig
    name = "lwf"
    summary = "cross-entropy and distillation of the old network's logits"
    paper = "LwF, ECCV 2016"

    def __init__(self, config: LwFConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return cross-entropy and, where there is a teacher, distillation."""
        terms = {"seg": self.cross_entropy(out.logits, targets)}
        if old is not None and self.config.distill > 0:
            valid = valid_pixels(batch, out.logits.shape[-2:])
            terms["distill"] = self.config.distill * distillation(out.logits, old.logits, valid)
        return terms
