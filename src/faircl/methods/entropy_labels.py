"""Pseudo labels by the old network below an entropy threshold per class (PLOP)."""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.distributed import global_sum
from faircl.labels import IGNORE
from faircl.methods.assignment import Assignment

LEVELS = 10_000
"""Bins of doubt in [0, 1]: much narrower than 0.001, a typical median of a trained network."""


class EntropyThresholds:
    """Median doubt of every class over all images of a step, from a histogram.

    Doubt is u = −Σ_c p_c·log p_c / log K, the old network's entropy over its largest possible value. Every process
    adds the images that it scans.
    """

    def __init__(self, classes: int, device: torch.device | None = None) -> None:
        self.classes = classes
        self.histogram = torch.zeros((classes, LEVELS), dtype=torch.int64, device=device)

    @torch.no_grad()
    def add(self, assignment: Assignment, unlabelled: Tensor) -> None:
        """Add a batch; ``unlabelled`` (B, H, W) bool marks the pixels that count."""
        assert assignment.doubt is not None, "thresholds are of doubt"
        level = (assignment.doubt[unlabelled] * LEVELS).long().clamp(0, LEVELS - 1)
        cell = assignment.labels[unlabelled] * LEVELS + level
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
        median = torch.where(count[:, -1] > 0, (below + 1).float() / LEVELS, 0.0)
        return median.clamp_min(floor)


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
