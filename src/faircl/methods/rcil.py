"""RCIL, representation compensation: a frozen branch beside a trained one; pooled features are distilled. CVPR 2022.

L = CE_unbiased(z, y) + λ_kd · KD_unbiased(z, z_old) + √(|seen| / |new|) · (SP + CP)
SP = 1/(S + 2) · ( λ_s · ( Σ_{l≤S} P(stage l) + P(embedding) ) + λ_s' · P(logits) )
CP = 1/(S + 1) · ( λ_c · Σ_{l≤S} Q(stage l) + λ_c' · Q(embedding) )
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from faircl.errors import UserError
from faircl.loading.batch import Batch
from faircl.losses.pod import like_old_logits
from faircl.losses.pooled_distillation import channel_pooled, spatial_pooled
from faircl.methods.base import StepContext, Terms
from faircl.methods.mib import MiB, MiBConfig
from faircl.models.parallel_branches import TwoBranches, find_conv_groups, second_state_keys
from faircl.models.segmenter import Segmenter, SegOutput


class RCILConfig(MiBConfig):
    """Hyper-parameters of RCIL, with its values for Pascal VOC. A weight of zero switches its term off."""

    name: str = "rcil"
    distill: float = Field(100.0, ge=0, description="λ_kd, weight of the distillation of logits; not on domain steps")
    spatial: float = Field(
        0.01,
        ge=0,
        description="λ_s, weight of means over windows, of stages and embedding; 5e-6 was published for ADE20K, 5e-4 "
        "for Cityscapes by domain",
    )
    spatial_logits: float = Field(
        5e-4, ge=0, description="λ_s', the same of the logits; 5e-7 for ADE20K, 1e-4 for Cityscapes by domain"
    )
    channel: float = Field(
        0.01,
        ge=0,
        description="λ_c, weight of means over neighbouring channels, of stages; 5e-6 for ADE20K, 1e-4 for Cityscapes "
        "by domain",
    )
    channel_embedding: float = Field(
        5e-4, ge=0, description="λ_c', the same of the embedding; 5e-7 for ADE20K, 0 for Cityscapes by domain"
    )
    branch: Literal["kept", "folded"] = Field(
        "kept",
        description="start of the trained branch at later steps: as the step before left it (published), or as a copy "
        "of the frozen one",
    )


class RCIL(MiB):
    """MiB's losses, pooled distillation, and two branches per 3×3 convolution while a step trains.

    At the first step both branches train, from the same weights. After every step they are folded into one
    convolution, exactly; at the next step it becomes the first branch, which is frozen, and the second is trained
    further. In training each channel is randomly taken from one branch or the mean of both (see
    ``faircl.models.parallel_branches``).

    P and Q compare maps of the new network with those of the old: means of squared features over windows of pixels,
    and over neighbouring channels. Domain steps have no distillation of logits, and √(|seen| / |new|) is set to 1.

    State: MiB's and, with ``branch: kept``, the second branches, which are empty during a step; in their names /
    stands for a dot.
    """

    Config = RCILConfig
    name = "rcil"
    summary = "a frozen and a trained branch per 3×3 convolution, folded after every step; pooled features are kept"
    paper = "RCIL, CVPR 2022"
    needs = replace(
        MiB.needs, words=f"{MiB.needs.words}; two branches per 3×3 convolution while a step trains", stages=True
    )

    saved_numbers = (*MiB.saved_numbers, "passes")

    config: RCILConfig

    def __init__(self, config: RCILConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.conv_groups = find_conv_groups(model)
        if not self.conv_groups:
            raise UserError(
                f"Method 'rcil' doubles 3×3 convolutions, but network '{model.name}' as configured has none; choose "
                "small, deeplabv3, deeplabv3plus, segformer or another backbone of timm."
            )
        self._branches: TwoBranches | None = None
        self.kept = nn.Module()
        for name in second_state_keys(model, self.conv_groups) if config.branch == "kept" else ():
            self.kept.register_buffer(_flat(name), torch.zeros(0))

    def step0_key(self) -> dict[str, object]:
        """Return name and ``branch``, which sets what the first step saves; the weights act on later steps only."""
        return {"method": {"name": self.config.name, "branch": self.config.branch}}

    @property
    def passes(self) -> int:
        """Training passes of the step so far, which seed the choice between the branches; 0 between steps."""
        return 0 if self._branches is None else self._branches.passes

    @passes.setter
    def passes(self, count: int) -> None:
        if self._branches is not None:
            self._branches.passes = count

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old network where a distillation term uses it."""
        c = self.config
        weights = [c.spatial, c.spatial_logits, c.channel, c.channel_embedding, 0 if context.domain else c.distill]
        return super().needs_teacher(context) and any(weight > 0 for weight in weights)

    def begin_step(self, context: StepContext) -> None:
        """Grow the classifier, then split convolutions into two branches."""
        super().begin_step(context)
        later = context.step > 0
        self._branches = TwoBranches(
            context.model, self.conv_groups, frozen=later, seed=context.seed, step=context.seed_step
        )
        if later and self.config.branch == "kept":
            self._branches.load_second_state(
                {name: getattr(self.kept, _flat(name)) for name in self._branches.second_state()}
            )
            self._keep({name: torch.zeros(0) for name in self._branches.second_state()})

    def end_step(self, context: StepContext) -> None:
        """Fold the branches into the plain network."""
        assert self._branches is not None, "a step begins before it ends"
        if self.config.branch == "kept":
            self._keep(self._branches.second_state())
        self._branches.fold()
        self._branches = None

    def _keep(self, state: dict[str, Tensor]) -> None:
        for name, value in state.items():
            setattr(self.kept, _flat(name), value.detach().clone())

    # Iterations

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return MiB's terms and, where there is a teacher, pooled distillation."""
        known = 0 if old is None else old.logits.shape[1]
        new = out.logits.shape[1] - known
        terms = super().losses(batch, out, old if new > 0 else None, targets)
        if old is None:
            return terms
        c = self.config
        growth = float((out.logits.shape[1] / new) ** 0.5) if new > 0 else 1.0
        # Maps count even where their weight is 0: the weight of the other maps must not change.
        spatial, channel = growth / (len(out.stages) + 2), growth / (len(out.stages) + 1)
        stages, embeddings = list(zip(out.stages, old.stages, strict=True)), (out.embedding, old.embedding)
        if c.spatial > 0:
            pairs = [*stages, embeddings]
            terms["spatial"] = c.spatial * spatial * torch.stack([spatial_pooled(*pair) for pair in pairs]).sum()
        if c.spatial_logits > 0:
            logits = like_old_logits(out.logits, known, self.background)
            terms["spatial_logits"] = c.spatial_logits * spatial * spatial_pooled(logits, old.logits)
        if c.channel > 0:
            terms["channel"] = c.channel * channel * torch.stack([channel_pooled(*pair) for pair in stages]).sum()
        if c.channel_embedding > 0:
            terms["channel_embedding"] = c.channel_embedding * channel * channel_pooled(*embeddings)
        return terms


def _flat(name: str) -> str:
    """Return a name without dots, which names of buffers must not contain."""
    return name.replace(".", "/")
