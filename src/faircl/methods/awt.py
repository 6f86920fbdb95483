"""AWT, attribution-aware weight transfer: new classifiers start from part of the background's weight.

Goswami et al., WACV 2023.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from faircl.distributed import global_sum
from faircl.labels import IGNORE, UNLABELLED
from faircl.methods.base import Needs, ScannedBatch, StepContext
from faircl.methods.feature_grid import flat_features, to_stride
from faircl.methods.wrapper import Wrapper, WrapperConfig
from faircl.models.classifier import GrowingClassifier
from faircl.models.segmenter import Segmenter
from faircl.seeding import seeded


class AWTConfig(WrapperConfig):
    """Hyper-parameters of AWT."""

    name: str = "awt"
    share: float = Field(0.25, gt=0, le=1, description="share of channels that take over the background's weight")
    per_class: bool = Field(False, description="choose channels for every new class, not for all of a step together")
    copy_bias: bool = Field(
        False, description="share the background's bias with the new classes, as MiB does; else they start at 0"
    )


class AWT(Wrapper):
    """w_new = w_random + m ⊙ w_bg, m the channels with the largest attribution to background on new-class pixels.

    The attribution of the old network's background logit to channel d of the classifier's input x at pixel i, by
    integrated gradients from zero, is exactly w_bg,d · x_i,d, because the classifier is linear. The score of channel d
    is its maximum over an image's new-class pixels (at network stride), averaged over the images that show a new
    class; m marks the highest ``share`` of channels. The published code averages windows position by position before
    the maximum; here whole images of different sizes are scanned, which have no common positions.

    The old background's bias stays, unless ``copy_bias``: b_new = b_bg ← b_bg − log(n + 1) for n new classes. So the
    inner method's ``init`` is used on later steps only where the data has no background class. Classes without a
    scanned pixel start at random. Costs one pass over the step's images before every later step.
    """

    Config = AWTConfig
    name = "awt"
    summary = "another method, new classifiers started from the background's highest-attribution channels"
    paper = "AWT, WACV 2023"
    needs = Needs("what the inner method needs, and one scan of the step's images by the old network")

    def __init__(self, config: AWTConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config

    def begin_step(self, context: StepContext) -> None:
        """Score channels with the old network, grow the classifier by the inner method, then set its newest head."""
        new = context.classes - context.old_classes
        if context.step == 0 or new == 0 or not context.background:
            super().begin_step(context)
            return
        weight, bias = (value.detach()[0].clone() for value in context.model.classifier.weight_and_bias())
        scores = self._scores(context, weight, new if self.config.per_class else 1)
        super().begin_step(context)
        self._start(context, top_channels(scores, self.config.share) * weight, bias)

    def _scores(self, context: StepContext, weight: Tensor, groups: int) -> Tensor:
        """Return the mean over images of the channel-wise maximum, (groups, D); NaN for a group that no image shows."""
        total = torch.zeros((groups, len(weight)), dtype=torch.float64, device=weight.device)
        count = torch.zeros((groups, 1), dtype=torch.float64, device=weight.device)
        for scanned in context.scan():
            best = strongest(scanned, weight, context.old_classes, groups)
            seen = best[..., :1].isfinite()
            total += best.where(seen, 0.0).sum(0)
            count += seen.sum(0)
        return global_sum(total) / global_sum(count)

    @torch.no_grad()
    def _start(self, context: StepContext, transfer: Tensor, bias: Tensor) -> None:
        """Set the newest head and the background's bias; this replaces the inner method's ``init``."""
        classifier = context.model.classifier
        head_weight, head_bias = classifier.heads[-1].parameters()
        _, first_bias = classifier.heads[0].parameters()
        with seeded(context.seed, "grow", context.seed_step):  # draws the random weights of ``grow`` again
            start = GrowingClassifier(classifier.width).grow(len(head_weight)).weight
        head_weight.copy_(start.to(head_weight) + transfer[:, :, None, None])
        shared = bias - math.log(len(head_weight) + 1)
        head_bias.copy_(shared.expand_as(head_bias) if self.config.copy_bias else torch.zeros_like(head_bias))
        first_bias[0] = shared if self.config.copy_bias else bias


def strongest(scanned: ScannedBatch, weight: Tensor, old_classes: int, groups: int) -> Tensor:
    """Maximum of w_bg,d · x_i,d over the new-class pixels i of every image, (B, groups, D) float64.

    With one group all new classes are taken together, else each class is a group; −∞ where an image shows none.
    """
    embedding = scanned.output.embedding
    labels = to_stride(scanned.labels, embedding.shape[-2:])
    new = (labels >= old_classes) & (labels != IGNORE) & (labels != UNLABELLED)
    image = torch.arange(len(labels), device=labels.device)[:, None, None].expand_as(labels)
    group = labels - old_classes if groups > 1 else torch.zeros_like(labels)
    row = (image * groups + group)[new]
    attribution = weight.double() * flat_features(embedding)[new.flatten()].double()
    best = attribution.new_full((len(labels) * groups, len(weight)), -torch.inf)
    best.scatter_reduce_(0, row[:, None].expand_as(attribution), attribution, "amax")
    return best.view(len(labels), groups, len(weight))


def top_channels(scores: Tensor, share: float) -> Tensor:
    """Mark the highest share of channels, at least one, of every row of scores (G, D); none where they are NaN."""
    chosen = scores.nan_to_num().topk(max(round(share * scores.shape[1]), 1), dim=1).indices
    mask = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, chosen, True)
    return mask & scores.isfinite()
