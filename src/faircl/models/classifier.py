"""A 1×1 classifier that grows by one head per step, and the initialisations of new heads.

A channel is a row of its weights. Every class has one, unless classes were merged (`faircl.models.merged_channels`).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faircl.class_groups import Groups, joined
from faircl.models.merged_channels import MergedChannels


class GrowingClassifier(nn.Module):
    """One 1×1 convolution per step, with concatenated logits.

    A method may add a head ``unknown`` for pixels of future classes. It is not a class. In training mode its logit z_u
    is returned by ``unknown_logit``. In evaluation mode it is added to the background, z_bg ← log(exp z_bg + exp z_u),
    so that predictions contain classes only; without a background class it is ignored.

    ``merged`` says which of the first heads' channels are one class together; those of later heads are one class each.

    Shapes: embedding (B, D, h, w) to logits (B, C, h, w), C the number of classes, R ≥ C that of all heads' channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.heads = nn.ModuleList()
        self.merged: MergedChannels | None = None
        self.unknown: nn.Conv2d | None = None
        self.unknown_is_background = False

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.groups)

    @property
    def sizes(self) -> list[int]:
        """Number of channels of every head."""
        return [head.out_channels for head in self._convolutions()]

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """The channels of every class."""
        first = () if self.merged is None else self.merged.groups
        single = range(sum(map(len, first)), sum(self.sizes))
        return [*first, *((channel,) for channel in single)]

    def weight_and_bias(self, heads: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Return the concatenated weights (R, D) and biases (R,) of all heads' channels, or of a slice of the heads."""
        chosen = self._convolutions()[heads]
        weight = torch.cat([head.weight for head in chosen]).flatten(1)
        return weight, torch.cat([_bias(head) for head in chosen])

    def forward(self, embedding: Tensor) -> Tensor:
        """Return the logits of all classes, computed by one convolution."""
        weight, bias = self.weight_and_bias()
        logits = self._merge(F.conv2d(embedding, weight[:, :, None, None], bias), 1)
        if self.training or self.unknown is None or not self.unknown_is_background:
            return logits
        return torch.cat([torch.logaddexp(logits[:, :1], self.unknown(embedding)), logits[:, 1:]], 1)

    def classify(self, features: Tensor) -> Tensor:
        """Return the logits (…, C) of single features (…, D), without those of the unknown head."""
        return self._merge(F.linear(features, *self.weight_and_bias()), -1)

    def _merge(self, logits: Tensor, dim: int) -> Tensor:
        """Return the logits of classes from those of channels."""
        if self.merged is None:
            return logits
        known = self.merged.channels
        later = logits.narrow(dim, known, logits.shape[dim] - known)
        return torch.cat([self.merged(logits.narrow(dim, 0, known), dim), later], dim)

    @torch.no_grad()
    def regroup(self, groups: Groups) -> None:
        """Make every class of one or several of the present ones; those of no group are dropped.

        All classes are then of one head, their channels in the order of the classes.
        """
        rows = joined(groups, self.groups)
        weight, bias = self.weight_and_bias()
        kept = torch.tensor([row for group in rows for row in group], device=weight.device)
        head = self._head(len(kept), weight.device).to(weight.dtype)
        head.weight.copy_(weight[kept][:, :, None, None])
        _bias(head).copy_(bias[kept])
        self.heads = nn.ModuleList([head])
        channels = iter(range(len(kept)))
        self.set_groups([[next(channels) for _ in group] for group in rows])

    def set_groups(self, groups: Groups) -> None:
        """Say which of the first channels are one class together; all of them are listed, further ones are classes."""
        several = any(len(group) > 1 for group in groups)
        self.merged = MergedChannels(groups, self._convolutions()[0].weight.device) if several else None

    def unknown_logit(self, embedding: Tensor) -> Tensor | None:
        """Return the logit of the unknown head (B, 1, h, w) in training mode; None without that head."""
        return self.unknown(embedding) if self.training and self.unknown is not None else None

    def grow(self, classes: int, device: torch.device | None = None) -> nn.Conv2d:
        """Add a head with random weights for a number of new classes."""
        head = self._head(classes, device)
        self.heads.append(head)
        return head

    def add_unknown(self, background: bool, device: torch.device | None = None) -> None:
        """Add an unknown head with random weights; ``background`` tells whether the first channel is background."""
        self.unknown, self.unknown_is_background = self._head(1, device), background

    def _head(self, classes: int, device: torch.device | None) -> nn.Conv2d:
        head = nn.Conv2d(self.width, classes, 1)
        nn.init.normal_(head.weight, std=0.01)
        nn.init.zeros_(_bias(head))
        return head.to(device)

    def unknown_weight_and_bias(self) -> tuple[Tensor, Tensor]:
        """Return the weight (1, D) and bias (1,) of the unknown head."""
        assert self.unknown is not None, "add_unknown must be called first"
        return self.unknown.weight.flatten(1), _bias(self.unknown)

    @torch.no_grad()
    def init_from_unknown(self) -> None:
        """Initialise every class of the newest head with the unknown head, as SSUL does."""
        head, (weight, bias) = self._convolutions()[-1], self.unknown_weight_and_bias()
        head.weight.copy_(weight[:, :, None, None].expand_as(head.weight))
        _bias(head).copy_(bias.expand_as(_bias(head)))

    @torch.no_grad()
    def init_from_background(self) -> None:
        """Initialise the newest head with the background's weights, as MiB does.

        The background's probability is divided evenly between the background and the n new classes: w_new = w_bg and
        b_new = b_bg ← b_bg − log(n + 1). Then p(bg) of the old model equals p(bg) + Σ p(new) of the new model. Of a
        background that was merged with classes, that of its first channel is divided; the equation holds as well.
        """
        first, head = self._convolutions()[0], self._convolutions()[-1]
        _bias(first)[0] -= math.log(head.out_channels + 1)
        head.weight.copy_(first.weight[:1].expand_as(head.weight))
        _bias(head).copy_(_bias(first)[:1].expand_as(_bias(head)))

    @torch.no_grad()
    def init_from_prototypes(self, new: Tensor, reference: Tensor, background: bool) -> None:
        """Initialise the newest head with mean features of the new classes.

        The decision boundary between a new class and the background is the plane half-way between the prototype p of
        the class and the prototype r of the background: with u = (p − r) / ‖p − r‖ and s the mean norm of the old
        weights, w_new = w_bg + s·u and b_new = b_bg − s·u·(p + r) / 2. Without a background class, r is the mean
        feature of unlabelled pixels and (w_bg, b_bg) are the mean old weight and bias.

        Shapes: new (n, D) are the p; reference (D,) is r. Classes whose prototype is NaN keep their random weights; if
        r is NaN, all classes do. After a merge w_bg is the background's first channel, and means are over channels.
        """
        known, known_bias = self.weight_and_bias(slice(-1))
        base_weight, base_bias = (known[0], known_bias[0]) if background else (known.mean(0), known_bias.mean())
        direction = F.normalize(new - reference, dim=1) * known.norm(dim=1).mean()
        weight = base_weight + direction
        bias = base_bias - (direction * (new + reference) / 2).sum(1)
        seen = new.isfinite().all(1) & reference.isfinite().all()
        head = self._convolutions()[-1]
        head.weight[seen] = weight[seen][:, :, None, None]
        _bias(head)[seen] = bias[seen]

    def _convolutions(self) -> list[nn.Conv2d]:
        return [head for head in self.heads if isinstance(head, nn.Conv2d)]


def _bias(head: nn.Conv2d) -> Tensor:
    assert head.bias is not None, "heads have a bias"
    return head.bias
