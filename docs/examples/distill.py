"""Distillation: keep the old channels' probabilities where the model of the step before had them."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from faircl.distributed import global_mean
from faircl.loading.batch import Batch
from faircl.methods.base import Method, MethodConfig, StepContext, Terms
from faircl.models.segmenter import Segmenter, SegOutput


class DistillConfig(MethodConfig):
    """Hyper-parameters of distillation."""

    name: str = "distill"
    weight: float = Field(1.0, ge=0, description="weight of the distillation term")


class Distill(Method):
    """L = CE(z, y) − weight · mean over pixels of Σ_c p_old,c · log p_c, over the old channels c."""

    Config = DistillConfig
    name = "distill"
    summary = "cross-entropy, and old channels kept close to the model of the step before"
    paper = "an example of the documentation"

    def __init__(self, config: DistillConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old model's output from the second step on."""
        return context.step > 0 and self.config.weight > 0

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return cross-entropy and, where there is a teacher, distillation at network stride."""
        terms = {"seg": self.cross_entropy(out.logits, targets)}
        if old is not None:
            log_p = out.logits[:, : old.logits.shape[1]].log_softmax(1)
            cross = -(old.logits.softmax(1) * log_p).sum(1)
            terms["distill"] = self.config.weight * global_mean(cross.sum(), cross.numel())
        return terms
