"""ILT: distillation of logits and of features. Michieli and Zanuttigh, ICCV workshops 2019."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from faircl.loading.batch import Batch
from faircl.losses.distillation import feature_distance
from faircl.methods.base import Terms
from faircl.methods.lwf import LwF, LwFConfig
from faircl.models.segmenter import Segmenter, SegOutput


class ILTConfig(LwFConfig):
    """Hyper-parameters of ILT."""

    name: str = "ilt"
    features: float = Field(100.0, ge=0, description="weight of the distance of the last backbone stage")


class ILT(LwF):
    """L = CE(z, y) + λ_1 · KD(z, z_old) + λ_2 · MSE(f, f_old), f the backbone's last stage."""

    Config = ILTConfig
    name = "ilt"
    summary = "LwF, and the backbone's features kept close"
    paper = "ILT, ICCVW 2019"
    needs = replace(LwF.needs, stages=True)

    def __init__(self, config: ILTConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.features = config.features

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return LwF's terms and, where there is a teacher, the distance of features."""
        terms = super().losses(batch, out, old, targets)
        if old is not None and self.features > 0:
            terms["features"] = self.features * feature_distance(out.stages[-1], old.stages[-1])
        return terms
