"""Distillation: the probabilities of old channels are kept close to those of the model of the step before."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from faircl import Batch, Method, MethodConfig, Needs, Segmenter, SegOutput, StepContext, Terms, global_mean


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
    needs = Needs("a frozen copy of the old network, run on every batch")

    def __init__(self, config: DistillConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old network from the second step on."""
        return context.step > 0 and self.config.weight > 0

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return cross-entropy and, where there is a teacher, distillation at network stride."""
        terms = {"seg": self.cross_entropy(out.logits, targets)}
        if old is not None:
            log_p = out.logits[:, : old.logits.shape[1]].log_softmax(1)
            cross = -(old.logits.softmax(1) * log_p).sum(1)
            terms["distill"] = self.config.weight * global_mean(cross.sum(), cross.numel())
        return terms
