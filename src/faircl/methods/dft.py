"""DFT*, direct fine-tuning: after the first step only new classifiers are trained; published in 2025."""

from __future__ import annotations

from faircl.methods.base import StepContext
from faircl.methods.finetune import FineTune, FineTuneConfig


class DFTConfig(FineTuneConfig):
    """Hyper-parameters of DFT*."""

    name: str = "dft"


class DFT(FineTune):
    """L = CE(z, y) with z over all classes so far; on later steps only the newest head has a gradient.

    Backbone, decoder (with the statistics of their normalisation layers) and old heads are frozen after the first
    step, so old logits never change. On later steps pixels of old and future classes are labelled background, as in
    plain fine-tuning. These wrong labels do not harm old classes: the background's weights are frozen too, and the only
    gradient of such a pixel lowers the new logits, ∂L/∂z_new = p_new, which is correct for it. Where the data has no
    background, such pixels are ignored, and new heads see only new classes.

    Domain steps add no head: all heads are trained, over the frozen backbone and decoder. The paper also trains the
    heads of future classes from the first step on, as negatives; here a head is added at the step of its classes.
    """

    Config = DFTConfig
    name = "dft"
    summary = "cross-entropy for new classifiers alone; all else is frozen after the first step"
    paper = "DFT*, 2025"

    def begin_step(self, context: StepContext) -> None:
        """Grow the classifier, then freeze everything but its newest head."""
        super().begin_step(context)
        if context.step == 0:
            return
        model = context.model
        model.backbone.requires_grad_(False)
        model.decoder.requires_grad_(False)
        if context.classes > context.old_classes:
            model.classifier.heads[:-1].requires_grad_(False)
