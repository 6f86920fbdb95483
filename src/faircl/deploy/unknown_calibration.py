"""A monotone map from a score to [0, 1] that says how unusual the score is among known features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_LOW, _HIGH = 5, 95
"""Percentiles between which the share is interpolated; beyond them are tails."""

_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Calibration:
    r"""The share of known features with a smaller score; it increases with the score.

    Between the 5th and the 95th percentile q of the known scores the share is interpolated linearly in a grid of
    percentiles. Beyond, where there are few known scores or none, hyperbolas approach 0 and 1:

        u(s) = 1 − 0.05 / (1 + (s − q_95) / w)  for s > q_95,  w = (q_99 − q_95) / 4, so that u(q_99) = 0.99,

    and likewise below q_5. So far scores keep their order.

    Shapes: percentiles (91,), q_5 to q_95; tails (2,), w below and above.
    """

    percentiles: Tensor
    tails: Tensor

    @classmethod
    def of(cls, known: Tensor) -> Calibration:
        """Return the map for scores (M,) of known features."""
        ordered = known.double().sort().values
        grid = torch.arange(101, device=known.device, dtype=torch.float64) / 100
        place = grid * (len(ordered) - 1)
        low = place.floor().long()
        part = place - low
        high = (low + 1).clamp_max(len(ordered) - 1)
        q = ordered[low] * (1 - part) + ordered[high] * part
        tails = torch.stack([q[_LOW] - q[1], q[99] - q[_HIGH]]) / 4
        least = 1e-3 * (q[_HIGH] - q[_LOW])  # where the last percentiles are equal
        return cls(q[_LOW : _HIGH + 1].float(), tails.clamp_min(least).clamp_min(1e-6).float())

    def __call__(self, scores: Tensor) -> Tensor:
        """Map scores of any shape to [0, 1]."""
        q, (below, above) = self.percentiles, self.tails
        place = torch.searchsorted(q, scores.contiguous()).clamp(1, len(q) - 1)
        left, right = q[place - 1], q[place]
        middle = (_LOW + place - 1 + ((scores - left) / (right - left).clamp_min(_TINY)).clamp(0, 1)) / 100
        under = (_LOW / 100) / (1 + (q[0] - scores).clamp_min(0) / below)
        over = 1 - (1 - _HIGH / 100) / (1 + (scores - q[-1]).clamp_min(0) / above)
        return torch.where(scores < q[0], under, torch.where(scores > q[-1], over, middle))

    def surprise(self, scores: Tensor) -> Tensor:
        """Return −log(1 − u(s)), exact also where u(s) rounds to 1."""
        beyond = (scores - self.percentiles[-1]).clamp_min(0) / self.tails[1]
        inside = -torch.log1p(-self(scores).clamp_max(_HIGH / 100))
        return torch.where(beyond > 0, beyond.log1p() - math.log(1 - _HIGH / 100), inside)
