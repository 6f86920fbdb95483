"""Balanced segmentation losses, for rare classes, under any method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from faircl.config.schema import BalanceConfig, BalancedLoss
from faircl.labels import BACKGROUND
from faircl.losses.binary import pixel_binary_cross_entropy
from faircl.losses.cross_entropy import pixel_cross_entropy, valid_mean, weighted
from faircl.losses.fairness import importance_weights, logit_offset
from faircl.losses.imbalance import effective_number_weights, pixel_seesaw, tilted_mean
from faircl.precision import at_least_float32_dtype

if TYPE_CHECKING:
    from faircl.methods.base import StepContext

SOFTMAX_ONLY: tuple[BalancedLoss, ...] = ("balanced_softmax", "logit_adjustment", "seesaw")
"""Losses in which classes compete; a method that trains a sigmoid per class cannot use them."""


class Balance(nn.Module):
    """The segmentation loss of a run's ``balance`` section.

    State: ``share`` (K,), the fraction of all pixels that each class has, and ``images`` (K,), the images that show it,
    both counted at the latest step that labelled the class. Background is counted as labelled, hidden old classes
    included. On domain steps, which label every class, both are taken over all domains so far. ``pixels``, the pixels
    that ``share`` was taken from; ``background``, whether the data has a background class.
    """

    saved_numbers = ("pixels", "background")

    share: Tensor
    images: Tensor

    def __init__(self, config: BalanceConfig) -> None:
        super().__init__()
        self.config = config
        self.used = False
        """Whether a loss was computed since the module was made."""
        self.pixels = 0
        self.background = False
        self.register_buffer("share", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("images", torch.zeros(0, dtype=torch.int64))

    def begin_step(self, context: StepContext) -> None:
        """Count the labels of a step."""
        device, self.background = self.share.device, context.background
        labels, images = context.label_pixels.to(device), context.label_images.to(device)
        share = labels.double() / max(context.pixels, 1)
        if context.domain:
            total = max(self.pixels + context.pixels, 1)
            self.share = (self.share * self.pixels + labels) / total
            self.images = self.images + images
            self.pixels += context.pixels
            return
        known = len(self.share)
        seen = labels[:known] > 0
        self.share = torch.cat([torch.where(seen, share[:known], self.share), share[known:]])
        self.images = torch.cat([torch.where(seen, images[:known], self.images), images[known:]])
        self.pixels = context.pixels

    def cross_entropy(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        class_weight: Tensor | None = None,
        offset: Tensor | None = None,
        pixel_weight: Tensor | None = None,
        grouped: int = 0,
    ) -> Tensor:
        """Return a balanced ``upsampled_cross_entropy``; weights are multiplied with those given, offsets added."""
        self.used = True
        c = self.config
        class_weight = _times(class_weight, self._weight(logits))
        offset = _plus(offset, self._offset(logits))
        if c.loss == "seesaw":
            moved = logits if offset is None else logits + offset[:, None, None]
            count = _padded(logit_offset(self._share(), 1.0), logits)
            loss = pixel_seesaw(moved, targets, count, c.mitigation, c.compensation, grouped)
            return valid_mean(weighted(loss, targets, class_weight, pixel_weight), targets)
        focal = c.gamma if c.loss == "focal" else 0.0
        loss = pixel_cross_entropy(
            logits,
            targets,
            class_weight=class_weight,
            offset=offset,
            pixel_weight=pixel_weight,
            grouped=grouped,
            focal=focal,
        )
        return self._mean(loss, targets, logits.shape[1])

    def binary_cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return a balanced ``upsampled_binary_cross_entropy``; SOFTMAX_ONLY losses are refused earlier."""
        self.used = True
        focal = self.config.gamma if self.config.loss == "focal" else 0.0
        loss = pixel_binary_cross_entropy(logits, targets, class_weight=self._weight(logits), focal=focal)
        return self._mean(loss, targets, logits.shape[1])

    def _mean(self, loss: Tensor, targets: Tensor, classes: int) -> Tensor:
        if self.config.loss == "tilted":
            return tilted_mean(loss, targets, self.config.tilt, classes)
        return valid_mean(loss, targets)

    def _share(self) -> Tensor:
        return self.share / self.share.sum()

    def _weight(self, logits: Tensor) -> Tensor | None:
        if self.config.loss == "weighted":
            weight = importance_weights(self._share(), self.config.power, self.config.clip)
        elif self.config.loss == "class_balanced":
            weight = effective_number_weights(self.images, self.config.beta)
        else:
            return None
        # An additional channel (SSUL's unknown) is of unlabelled pixels: it weighs as background, where there is one.
        other = weight[BACKGROUND] if self.background else weight.new_ones(())
        return _padded(weight, logits, other)

    def _offset(self, logits: Tensor) -> Tensor | None:
        strength = {"balanced_softmax": 1.0, "logit_adjustment": self.config.tau}.get(self.config.loss)
        return None if strength is None else _padded(logit_offset(self._share(), strength), logits)


def _padded(values: Tensor, logits: Tensor, other: Tensor | None = None) -> Tensor:
    """Pad values (K,) to the channels of logits, with ``other`` () or zero: a method may have additional channels."""
    values = values.to(at_least_float32_dtype(logits))
    other = values.new_zeros(()) if other is None else other.to(values)
    return torch.cat([values, other.expand(logits.shape[1] - len(values))])


def _times(given: Tensor | None, own: Tensor | None) -> Tensor | None:
    return own if given is None else given if own is None else given * own


def _plus(given: Tensor | None, own: Tensor | None) -> Tensor | None:
    return own if given is None else given if own is None else given + own
