"""SATS, self-attention transfer: the old network's mean attention of every class is distilled. Qiu et al., 2023.

L = 1/N · Σ_i f_{b(i)} · CE(z_i, ỹ_i) + λ_kd · KD_unbiased(z, z_old) + λ_att / S · Σ_s AT(A_s, A_s,old)
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from faircl.errors import UserError
from faircl.loading.batch import Batch
from faircl.losses.attention_transfer import attention_transfer, stage_ends
from faircl.losses.distillation import distillation, unbiased_distillation
from faircl.methods.balance import Balance
from faircl.methods.base import MethodConfig, StepContext, TeacherMethod, Terms
from faircl.methods.feature_grid import to_stride, valid_pixels
from faircl.methods.plop import DOUBT, PLOP, Doubt, PLOPConfig
from faircl.models.segmenter import Segmenter, SegOutput


class SATSConfig(MethodConfig):
    """Hyper-parameters of SATS, with its published values. A weight of zero switches its term off."""

    name: str = "sats"
    distill: float = Field(20.0, ge=0, description="λ_kd, weight of the distillation of logits")
    attention: float = Field(20.0, ge=0, description="λ_att, weight of the attention transfer")
    threshold: float = Field(
        0.001,
        ge=0,
        le=1,
        description="least value of τ_c, the doubt (entropy over its largest) below which pixels count",
    )
    doubt: Doubt = Field("normalised", description=DOUBT)


class SATS(TeacherMethod):
    """Cross-entropy with PLOP's pseudo labels, MiB's distillation and attention transfer (AT) from the second step on.

    ỹ, f and the start of new classes are those of PLOP, which is an attribute here, with its POD switched off. AT
    compares, at the last block of each of the S stages, the mean attention row of every class that an image shows,
    without background. Classes are those of ỹ at the grid of the block's queries (B, h·w), by nearest neighbour;
    ignored pixels belong to no class.

    Without a background class all classes are compared and the distillation is plain; on domain steps, where no class
    is new, unbiased and plain distillation are the same, and ỹ is the true label. A network must have one query per
    pixel of a feature map; others are refused when the method is made. State: PLOP's, under ``plop.``.
    """

    Config = SATSConfig
    name = "sats"
    summary = "PLOP's pseudo labels, MiB's distillation; a class's mean attention is kept in every stage"
    paper = "SATS, 2023"
    needs = replace(
        TeacherMethod.needs,
        words=f"{TeacherMethod.needs.words}, and a network with attentions (segformer)",
        stages=True,  # their sizes
        attentions=True,
    )

    def __init__(self, config: SATSConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        _check_attentions(model)
        self.config = config
        pseudo = PLOPConfig(init=config.init, threshold=config.threshold, doubt=config.doubt, pod=0, pod_logits=0)
        self.plop = PLOP(pseudo, model)

    def step0_key(self) -> dict[str, object]:
        """Return the name alone: every hyper-parameter acts on later steps only."""
        return {"method": {"name": self.config.name}}

    def set_balance(self, balance: Balance) -> None:
        """Balance PLOP's loss."""
        self.plop.set_balance(balance)

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old network where a distillation term or pseudo labels use it."""
        kept = self.config.distill > 0 or self.config.attention > 0
        return super().needs_teacher(context) and (kept or self.plop.needs_teacher(context))

    def begin_step(self, context: StepContext) -> None:
        """Begin PLOP's step, which sets its thresholds and grows the classifier."""
        self.plop.begin_step(context)

    # Iterations

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Return PLOP's targets."""
        return self.plop.targets(batch, out, old)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return cross-entropy and, where there is a teacher, distillation and attention transfer."""
        terms = self.plop.losses(batch, out, None, targets)
        if old is not None and self.config.distill > 0:
            distil = unbiased_distillation if self.plop.background else distillation
            terms["distill"] = self.config.distill * distil(
                out.logits, old.logits, valid_pixels(batch, out.logits.shape[-2:])
            )
        if old is not None and self.config.attention > 0:
            terms["attention"] = self.config.attention * self._transfer(out, old, targets)
        return terms

    def _transfer(self, out: SegOutput, old: SegOutput, targets: Tensor) -> Tensor:
        """Return the mean of AT over stages."""
        new, was = out.attentions, old.attentions
        assert new is not None, "the engine provides the attentions that needs asks for"
        assert was is not None, "of the old network too"
        first = int(self.plop.background)
        stages = [
            attention_transfer(new[k], was[k], to_stride(targets, size).flatten(1), first, self.plop.classes)
            for k, size in stage_ends(new, _sizes(out.stages))
        ]
        return torch.stack(stages).mean()


def _sizes(stages: tuple[Tensor, ...]) -> list[tuple[int, int]]:
    return [(stage.shape[-2], stage.shape[-1]) for stage in stages]


def _check_attentions(model: Segmenter) -> None:
    """Refuse a network without one attention row per pixel; tried on the meta device, which computes nothing."""
    fitting = "set model.name to segformer, or to a vit without class and register tokens"
    if not model.has_attentions:
        raise UserError(f"Method 'sats' compares attentions, but network '{model.name}' has none; {fitting}.")
    trial = copy.deepcopy(model).to("meta").eval()
    with torch.no_grad():
        image = torch.empty(1, 3, 64, 96, dtype=trial.mean.dtype, device="meta")
        stages, attentions = trial.features(image, True)
    try:
        stage_ends(attentions or (), _sizes(stages))
    except ValueError as error:
        raise UserError(
            f"Method 'sats' needs one attention row per pixel, but in network '{model.name}' {error}; {fitting}."
        ) from None
