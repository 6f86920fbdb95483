"""Both sides of the triangle inequality behind Proposition 1 of FairCL: measured, not minimised."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from faircl.distributed import global_mean
from faircl.labels import IGNORE
from faircl.precision import at_least_float32_dtype


class Sides(NamedTuple):
    """Both sides at every pixel, and ``valid``, the pixels that count: (B, h, w) each."""

    moved: Tensor
    bound: Tensor
    valid: Tensor

    def means(self) -> dict[str, Tensor]:
        """Return means over the valid pixels of all processes; ``tightness`` is the mean of moved / bound."""
        tiny = torch.finfo(self.bound.dtype).tiny
        # 0 / 0 counts as 1: both sides are equal.
        ratio = (self.moved / self.bound.clamp_min(tiny)).where(self.bound > 0, 1.0)
        parts = {"moved": self.moved, "bound": self.bound, "tightness": ratio}
        count = self.valid.sum()
        return {name: global_mean(part.where(self.valid, 0.0).sum(), count) for name, part in parts.items()}


@torch.no_grad()
def both_sides(
    features: Tensor, old: Tensor, labels: Tensor, prototypes: Tensor, active: Tensor, order: float = 2.0
) -> Sides:
    r"""Return how far features have moved since the step before, and the bound through their class's prototype.

        moved_i = ℓ(f_i, f_i,old)  ≤  bound_i = ℓ(f_i, p_{y_i}) + ℓ(f_i,old, p_{y_i})

    with ℓ the ``order``-norm of the difference: the triangle inequality, at every pixel. Pixels count as in
    ``cluster_loss``: those whose label is valid and has an active prototype.

    Shapes: features, old (B, D, h, w); labels (B, h, w) int64 with IGNORE; prototypes (K, D); active (K,) bool.
    """
    if features.shape != old.shape:
        raise ValueError(f"features of one shape are compared, found {tuple(features.shape)} and {tuple(old.shape)}")
    exact = at_least_float32_dtype(features)
    features, old, prototypes = features.to(exact), old.to(exact), prototypes.to(exact)
    valid = labels != IGNORE
    labels = labels.where(valid, 0)
    own = prototypes[labels].permute(0, 3, 1, 2)

    moved, now, then = (_length(a - b, order) for a, b in ((features, old), (features, own), (old, own)))
    return Sides(moved, now + then, valid & active[labels])


def _length(difference: Tensor, order: float) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(difference, ord=order, dim=1)
    return length
