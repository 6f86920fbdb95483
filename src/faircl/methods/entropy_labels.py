"""Pseudo labels by the old network below an entropy threshold per class (PLOP)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from faircl.distributed import global_sum
from faircl.labels import IGNORE
from faircl.methods.assignment import Assignment

LEVELS = 10_000
"""Bins of doubt in [0, 1]: much narrower than 0.001, a typical median of a trained network."""
PUBLISHED_LEVELS = 100
"""Bins of the public code."""


class EntropyThresholds:
    """Median doubt of every class over all images of a step, from a histogram.

    Doubt is u = −Σ_c p_c·log p_c / log K, the old network's entropy over its largest possible value. Every process
    adds the images that it scans.
    """

    levels = LEVELS
    scale = 1.0
    """What u is multiplied by before it is put into a bin."""

    def __init__(self, classes: int, device: torch.device | None = None) -> None:
        self.classes = classes
        self.histogram = torch.zeros((classes, self.levels), dtype=torch.int64, device=device)

    @torch.no_grad()
    def add(self, assignment: Assignment, unlabelled: Tensor) -> None:
        """Add a batch; ``unlabelled`` (B, H, W) bool marks the pixels that count."""
        assert assignment.doubt is not None, "thresholds are of doubt"
        level = (assignment.doubt[unlabelled] * self.scale * self.levels).long().clamp(0, self.levels - 1)
        cell = assignment.labels[unlabelled] * self.levels + level
        self.histogram += torch.bincount(cell, minlength=self.histogram.numel()).view_as(self.histogram)

    def gather(self, floor: float) -> Tensor:
        r"""Return the thresholds (K,) over all processes, the same on each.

            τ_c = max( median of u over the unlabelled pixels that the old network predicts as c, floor )

        The median is the upper edge of the first bin at which the cumulative count reaches half of the pixels, so at
        least half of a class's pixels lie below it. A class without a pixel has the floor.
        """
        count = global_sum(self.histogram).cumsum(1)
        # Bins whose cumulative count is below half are wholly below the median's.
        below = (2 * count < count[:, -1:]).sum(1)
        median = torch.where(count[:, -1] > 0, (below + 1).float() / self.levels, 0.0)
        return median.clamp_min(floor)


class PublishedEntropyThresholds(EntropyThresholds):
    r"""The same thresholds as the public code of PLOP computes them, which REMINDER and SATS share.

    It takes the mean over classes in place of the entropy's sum and divides by a logarithm twice, with K old classes
    and S classes seen, the new ones included:

        u' = −1/K · Σ_c p_c·log p_c / (log K · log S) = u / (K·log S)

    u' is at most 1 / (K·log S), 0.022 at the second step of VOC 15-1 and 0.002 at that of ADE20K 100-50, and bins are
    0.01 wide. Where half of a class's pixels lie in the first bin, τ'_c is from 0.005 to 0.01, whatever their median:
    with K·log S ≥ 200 none of them is rejected.
    """

    levels = PUBLISHED_LEVELS

    def __init__(self, classes: int, seen: int, device: torch.device | None = None) -> None:
        super().__init__(classes, device)
        self.scale = 1 / (max(classes, 1) * math.log(max(seen, 2)))

    def gather(self, floor: float) -> Tensor:
        r"""Return the thresholds (K,) of u, so that u < τ_c where u' < τ'_c.

        With n_k of the class's N pixels in bin k of B, s_k = Σ_{j<k} j and k the first bin with

            s_k ≤ N/2 ≤ s_k + n_k:    τ'_c = max( (k + (N/2 − s_k) / n_k) / B, floor ),    τ_c = K·log S · τ'_c

        s_k is a sum of bin numbers where a median needs the sum of their counts; in the first bin both are 0. Without
        such a bin the public code divides by the count of the last, which is 0: τ'_c is ∞, which rejects nothing, where
        N/2 is above the sum of all bin numbers, else the floor.
        """
        count = global_sum(self.histogram)
        half = count.sum(1, keepdim=True) / 2
        bins = torch.arange(self.levels, device=count.device)
        skipped = bins.cumsum(0) - bins
        # An empty bin holds no median, whatever its number.
        fits = (skipped <= half) & (half <= skipped + count) & (count > 0)
        first = (fits.cumsum(1) == 0).sum(1, keepdim=True).clamp_max(self.levels - 1)
        inside = (half - skipped[first]) / count.gather(1, first)
        missed = torch.where(half > bins.sum(), math.inf, 0.0)
        median = torch.where(fits.any(1, keepdim=True), (first + inside) / self.levels, missed)
        return median[:, 0].clamp_min(floor) / self.scale


@torch.no_grad()
def sure_labels(assignment: Assignment, thresholds: Tensor) -> Tensor:
    """Return labels (B, H, W) where the doubt is below the threshold (K,) of their class, else IGNORE."""
    assert assignment.doubt is not None, "thresholds are of doubt"
    return assignment.labels.where(assignment.doubt < thresholds[assignment.labels], IGNORE)


@torch.no_grad()
def kept_share(targets: Tensor, unlabelled: Tensor) -> Tensor:
    """Return the share (B,) of every image's unlabelled pixels that have a target; 1 where none is unlabelled.

    Shapes: targets (B, H, W) int64 with IGNORE; unlabelled (B, H, W) bool.
    """
    kept = (unlabelled & (targets != IGNORE)).flatten(1).sum(1)
    total = unlabelled.flatten(1).sum(1)
    return torch.where(total > 0, kept / total.clamp_min(1), 1.0)
