"""The class distributions that L_class reads: p of the labels and p̂ of the predictions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faircl.distributed import global_sum
from faircl.labels import BACKGROUND, IGNORE
from faircl.losses import class_histogram
from faircl.methods.base import StepContext
from faircl.methods.feature_grid import to_stride


class ClassDistribution(nn.Module):
    """Pixel shares of all classes so far.

    State: ``share`` (K,), p, each class as counted at the step that labelled it, so that the sum need not be 1;
    ``pixels``, the number of pixels that p was counted over; ``predicted`` (K,), the running p̂ of the step.
    """

    saved_numbers = ("pixels",)

    share: Tensor
    predicted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.pixels = 0
        self.register_buffer("share", torch.zeros(0))
        self.register_buffer("predicted", torch.zeros(0))

    def begin_step(self, context: StepContext, label_pixels: Tensor, assigned: bool) -> None:
        """Count the labels of a step, label_pixels (K,); ``assigned`` says whether unlabelled pixels have labels."""
        if context.domain:
            self._add_domain(context, label_pixels)
        else:
            self._add_classes(context, label_pixels, assigned)
        self.predicted = torch.full_like(self.share, 1 / len(self.share))

    def set(self, share: Tensor, pixels: int) -> None:
        """Set p (K,), counted over so many pixels."""
        self.share, self.pixels = share.to(self.share), pixels
        self.predicted = torch.full_like(self.share, 1 / len(self.share))

    def _add_classes(self, context: StepContext, label_pixels: Tensor, assigned: bool) -> None:
        """Set p of the new classes; old ones keep theirs.

        The background's share is renewed only where the step separates background from old classes: at the first step,
        with assigned labels, or where no class is hidden.
        """
        seen = (label_pixels / max(context.pixels, 1)).to(self.share)
        share = torch.cat([self.share, seen[context.old_classes :]])
        hidden = context.step > 0 and context.unlabelled == BACKGROUND
        if context.background and (not hidden or assigned):
            share[BACKGROUND] = seen[BACKGROUND]
        self.share, self.pixels = share, context.pixels

    def _add_domain(self, context: StepContext, label_pixels: Tensor) -> None:
        """Take p over all domains so far, since one may lack a class: p ← (n·p + n_t·p_t) / (n + n_t), n in pixels."""
        total = max(self.pixels + context.pixels, 1)
        self.share = ((self.share.double() * self.pixels + label_pixels.to(self.share.device)) / total).to(self.share)
        self.pixels += context.pixels

    def normalised(self) -> Tensor:
        """Return p (K,) with a sum of 1."""
        return self.share / self.share.sum()

    def histogram(self, logits: Tensor, targets: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
        """Return p̂ = m·(running p̂) + (1 − m)·(that of the batch) (K,), and whether the batch has a valid pixel ()."""
        valid = to_stride(targets, logits.shape[-2:]) != IGNORE
        histogram = momentum * self.predicted + (1 - momentum) * class_histogram(logits, valid)
        return histogram, global_sum(valid.sum()) > 0

    def observe(self, logits: Tensor, targets: Tensor, momentum: float) -> None:
        """Update the running p̂ with a batch."""
        histogram, seen = self.histogram(logits, targets, momentum)
        self.predicted = torch.where(seen, histogram, self.predicted)
