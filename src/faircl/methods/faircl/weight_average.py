"""Averaging backbone and decoder with those of the network before a step, as far as new classes keep what they have."""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.distributed import global_sum
from faircl.labels import IGNORE
from faircl.methods.base import StepContext
from faircl.methods.ewf import fuse
from faircl.methods.feature_grid import to_stride
from faircl.metrics.confusion import ConfusionMatrix, iou
from faircl.models.segmenter import Segmenter

JUDGED = 128
"""Windows on which new classes are judged, at most."""


class WeightAverage:
    """θ ← a·θ_old + (1 − a)·θ_new for backbone and decoder, statistics of their normalisation layers included.

    A step of few images also moves the features of classes that these images hardly show. Averaging takes back most of
    that. Where new classes had to move features far, it takes back what they have learned, too. Therefore a is the
    largest of ``share``, ``share``/2 and 0 with which the mean IoU of the new classes, on fixed windows of the step's
    images, is not lower than without averaging. With soft labels these are windows that were trained on.

    The classifier is not averaged: new classes have no old weights, and those of old classes were trained against them.
    Prototypes and remembered features stay those of the network before averaging.
    The old weights lie in host memory during the step. They are not saved: a resumed step begins from the network of
    the step before again.
    """

    def __init__(self, network: Segmenter, share: float) -> None:
        self.share = share
        self._old = {name: value.detach().cpu().clone() for name, value in _averaged(network).items()}

    def apply(self, context: StepContext) -> None:
        """Average the weights of ``context.model`` in place."""
        weights = _averaged(context.model)
        learned = {name: value.clone() for name, value in weights.items()}
        least = new_class_iou(context)
        for share in (self.share, self.share / 2):
            fuse(weights, self._old, 1 - share)
            if new_class_iou(context) >= least:
                return
            for name, value in weights.items():
                value.copy_(learned[name])


@torch.no_grad()
def new_class_iou(context: StepContext) -> float:
    """Return the mean IoU of a step's new classes at network stride, on JUDGED fixed windows of its images at most.

    An unlabelled pixel counts as old, whichever class it is: it is certainly not new. NaN if no window shows a new
    class.
    """
    old, counts = context.old_classes, ConfusionMatrix(context.classes, context.model.mean.device)
    for scanned in context.scan(max(context.windows, 1), JUDGED):
        predicted = scanned.output.logits.argmax(1)
        labels = to_stride(scanned.labels, predicted.shape[-2:])
        new = (labels >= old) & (labels < context.classes)
        counts.update(predicted, labels.where(new | (labels == IGNORE), 0))
    return float(iou(global_sum(counts.counts))[old:].nanmean())


def _averaged(network: Segmenter) -> dict[str, Tensor]:
    """Return the weights that are averaged, by name: floating numbers, not counters."""
    state = network.backbone.state_dict(prefix="backbone.") | network.decoder.state_dict(prefix="decoder.")
    return {name: value for name, value in state.items() if value.is_floating_point()}
