"""Fine-tuning: plain cross-entropy at every step. The reference that forgets."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from faircl.config.components import Init
from faircl.loading.batch import Batch
from faircl.methods.base import Method, MethodConfig, Terms
from faircl.models.segmenter import SegOutput


class FineTuneConfig(MethodConfig):
    """Hyper-parameters of fine-tuning."""

    name: str = "finetune"
    init: Init = Field("random", description="start of new classes' classifier: random, background or prototype")


class FineTune(Method):
    """L = CE(z, y), with pixels of other steps' classes as background (ignored where the data has none)."""

    Config = FineTuneConfig
    name = "finetune"
    summary = "cross-entropy on the step's labels alone; forgets"
    paper = "the row that forgets of every table"

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return cross-entropy on the step's labels."""
        return {"seg": self.cross_entropy(out.logits, targets)}
