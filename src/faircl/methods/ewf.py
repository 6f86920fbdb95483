"""EWF, endpoints weight fusion: after a step old and new weights are averaged. Xiao et al., CVPR 2023."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from faircl.methods.base import Needs, StepContext
from faircl.methods.wrapper import Wrapper, WrapperConfig
from faircl.models.segmenter import Segmenter


class EWFConfig(WrapperConfig):
    """Hyper-parameters of EWF."""

    name: str = "ewf"
    freeze_old: bool = Field(True, description="do not train old classes' classifiers on steps that add classes")
    domain_alpha: float = Field(0.5, ge=0, le=1, description="α on domain steps, which add no class to count")


class EWF(Wrapper):
    """θ ← (1 − α)·θ_old + α·θ_new after every later step, α = √( |C_new| / (|C_new| + |C_old|) ).

    θ is every parameter and every floating buffer that the network had before the step: backbone, decoder, statistics
    of its normalisation layers and old classifiers. C_old counts the background where there is one. New classifiers
    keep what they have learned, counters (integers) stay as they are. On domain steps α is ``domain_alpha`` and
    nothing is frozen.

    What the inner method computes at the end of a step (REMINDER's prototypes) uses the network before fusion.

    The old weights are held during the step: one more copy of the network on its device. They are not saved, because an
    interrupted step is trained again from its beginning.
    """

    Config = EWFConfig
    name = "ewf"
    summary = "another method, its weights averaged with the old ones after every step"
    paper = "EWF, CVPR 2023"
    needs = Needs("what the inner method needs, and a copy of the old weights")

    def __init__(self, config: EWFConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config
        self._old: dict[str, Tensor] = {}

    def begin_step(self, context: StepContext) -> None:
        """Keep the old weights, grow the classifier, then freeze its old heads."""
        state = context.model.state_dict() if context.step > 0 else {}
        # Before growth: the inner method's ``init`` may change the background's bias.
        self._old = {name: value.detach().clone() for name, value in state.items() if value.is_floating_point()}
        super().begin_step(context)
        if self.config.freeze_old and context.step > 0 and context.classes > context.old_classes:
            context.model.classifier.heads[:-1].requires_grad_(False)

    def end_step(self, context: StepContext) -> None:
        """End the inner method's step, then fuse the weights."""
        super().end_step(context)
        fuse(context.model.state_dict(), self._old, self.alpha(context))
        self._old = {}

    def alpha(self, context: StepContext) -> float:
        """Return α, the share of the new weights."""
        new = context.classes - context.old_classes
        return float((new / context.classes) ** 0.5) if new > 0 else self.config.domain_alpha


@torch.no_grad()
def fuse(state: dict[str, Tensor], old: dict[str, Tensor], alpha: float) -> None:
    """Set state ← old + α·(state − old) in place, by name; equal values stay exactly equal.

    ``old`` may lie on another device.
    """
    for name, value in old.items():
        state[name].copy_(torch.lerp(value.to(state[name].device), state[name], alpha))
