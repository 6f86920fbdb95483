"""DFT*, direct fine-tuning of new classifiers over a network that no longer moves; published in 2025."""

from __future__ import annotations

from faircl.methods.base import StepContext
from faircl.methods.finetune import FineTune, FineTuneConfig


class DFTConfig(FineTuneConfig):
    """Hyper-parameters of DFT*."""

    name: str = "dft"


class DFT(FineTune):
    """L = CE(z, y) with z over all classes so far; on later steps only the newest head has a gradient.

    Backbone, decoder (with the statistics of their normalisation layers) and old heads are frozen after the first
    step, so old logits never change. On later steps pixels of old and coming classes are labelled background, as in
    plain fine-tuning. That mistake costs old classes nothing: the background's weights are old too, and all that such
    a pixel does is to push new logits down, ∂L/∂z_new = p_new, which is right for it. Where the data has no
    background, such pixels do not count, and new heads see new classes alone.

    Domain steps add no head: there all heads are trained, over the frozen backbone and decoder. The paper also
    trains the heads of coming classes from the first step on, as never-right answers; here a head comes with its step.
    """

    Config = DFTConfig
    name = "dft"
    summary = "cross-entropy for new classifiers alone; all else is frozen after the first step"
    paper = "DFT*, 2025"

    def begin_step(self, context: StepContext) -> None:
        """Grow the classifier, then freeze all but its newest head."""
        super().begin_step(context)
        if context.step == 0:
            return
        model = context.model
        model.backbone.requires_grad_(False)
        model.decoder.requires_grad_(False)
        if context.classes > context.old_classes:
            model.classifier.heads[:-1].requires_grad_(False)
