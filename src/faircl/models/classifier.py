"""A 1×1 classifier that grows by a head at every step, and how new heads start."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GrowingClassifier(nn.Module):
    """One 1×1 convolution per step; their logits side by side.

    Shapes: embedding (B, D, h, w) to logits (B, C, h, w), C the classes of all heads.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.heads = nn.ModuleList()

    @property
    def classes(self) -> int:
        """Number of channels so far."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Number of channels of every head."""
        return [head.out_channels for head in self._convolutions()]

    def weight_and_bias(self, heads: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Return the weights (C, D) and biases (C,) of all heads, or of some."""
        chosen = self._convolutions()[heads]
        weight = torch.cat([head.weight for head in chosen]).flatten(1)
        return weight, torch.cat([_bias(head) for head in chosen])

    def forward(self, embedding: Tensor) -> Tensor:
        """Classify with a single convolution over all heads."""
        weight, bias = self.weight_and_bias()
        return F.conv2d(embedding, weight[:, :, None, None], bias)

    def grow(self, classes: int, device: torch.device | None = None) -> nn.Conv2d:
        """Add a head of random weights for so many classes."""
        head = nn.Conv2d(self.width, classes, 1)
        nn.init.normal_(head.weight, std=0.01)
        nn.init.zeros_(_bias(head))
        self.heads.append(head.to(device))
        return head

    @torch.no_grad()
    def init_from_background(self) -> None:
        """Start the newest head from the background, as MiB does.

        The background's probability is shared evenly with the n new classes: w_new = w_bg and
        b_new = b_bg ← b_bg − log(n + 1), so that p(bg) of the old model is p(bg) + Σ p(new) of the new one.
        """
        first, head = self._convolutions()[0], self._convolutions()[-1]
        _bias(first)[0] -= math.log(head.out_channels + 1)
        head.weight.copy_(first.weight[:1].expand_as(head.weight))
        _bias(head).copy_(_bias(first)[:1].expand_as(_bias(head)))

    @torch.no_grad()
    def init_from_prototypes(self, new: Tensor, reference: Tensor, background: bool) -> None:
        """Start the newest head from mean features of the new classes.

        A new class splits off from the background at the plane half-way between its prototype p and the
        background's, r: with u = (p − r) / ‖p − r‖ and s the mean norm of the old weights,
        w_new = w_bg + s·u and b_new = b_bg − s·u·(p + r) / 2. Without a background class r is the mean feature of
        unlabelled pixels and (w_bg, b_bg) the mean old weight and bias.

        Shapes: new (n, D), reference (D,). A class with no feature (NaN), or all where the reference has none, keeps
        its random start.
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
    assert head.bias is not None, "heads are made with a bias"
    return head.bias
