"""The unknown cluster: a prototype p_u for unlabelled pixels that belong to no class learned so far."""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.labels import IGNORE
from faircl.precision import at_least_float32_dtype
from faircl.prototypes import PrototypeBank

_ROW = 0
"""The cluster's row in its own bank."""


class UnknownCluster(PrototypeBank):
    """The prototype p_u of unknown classes: a bank of one row that moves at every step, whatever classes arrive.

    In labels of L_cluster the unknown cluster is the number K that follows those of the K classes. Δ is the ``margin``
    of L_cluster and ℓ its norm, of this ``order``.
    """

    def __init__(
        self, width: int, length: int, period: int, momentum: float, *, margin: float, order: float = 2.0
    ) -> None:
        super().__init__(width, length, period, momentum)
        self.margin, self.order = margin, order

    def begin_step(self, classes: int, background: bool) -> None:
        """Empty the queue, whatever classes arrive; p_u keeps its value until the step's first mean."""
        super().begin_step(1, background=True)

    def beside(self, known: PrototypeBank) -> tuple[Tensor, Tensor]:
        """Return all prototypes (K + 1, D), p_u last, and which have a value (K + 1,)."""
        return torch.cat([known.prototypes, self.prototypes]), torch.cat([known.ready, self.ready])

    @torch.no_grad()
    def mark(
        self, features: Tensor, labels: Tensor, unlabelled: Tensor, known: PrototypeBank, hides_classes: bool
    ) -> Tensor:
        r"""Return labels with K at unlabelled pixels that belong to the unknown cluster.

            ŷ_i ← K  where  ℓ(f_i, p_{ŷ_i}) > min(Δ, ℓ(f_i, p_u))

        ŷ_i is the class of an unlabelled pixel in ``labels``: it changes to K where p_u is closer than p_{ŷ_i}, or
        where p_{ŷ_i} is farther than the margin Δ of L_cluster. The distance to p_u is infinite until p_u has a value.
        Pixels of a class without a prototype do not change. Pixels without a class (IGNORE) become K, except at steps
        that hide classes (``hides_classes``), where they may show an old class and stay IGNORE.

        Shapes: features (B, D, h, w); labels (B, h, w) int64 with IGNORE; unlabelled (B, h, w) bool.
        """
        exact = at_least_float32_dtype(features)
        features = features.to(exact)
        given = labels != IGNORE
        own = labels.where(given, 0)
        to_own = self._distance(features, known.prototypes.to(exact)[own].permute(0, 3, 1, 2))
        to_unknown = self._distance(features, self.prototypes[_ROW].to(exact)[:, None, None])
        limit = to_unknown.masked_fill(~self.ready[_ROW], torch.inf).clamp_max(self.margin)
        unknown = given & known.ready[own] & (to_own > limit)
        if not hides_classes:
            unknown = unknown | ~given
        return labels.masked_fill(unlabelled & unknown, known.classes)

    def _distance(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """Distance (B, h, w) of features (B, D, h, w) to one prototype (D, 1, 1), or to one per pixel (B, D, h, w)."""
        distance: Tensor = torch.linalg.vector_norm(features - prototypes, ord=self.order, dim=1)
        return distance

    def push_marked(self, features: Tensor, labels: Tensor, known: PrototypeBank, keys: Tensor, quota: int) -> None:
        """Append features of pixels that ``mark`` has given to the unknown cluster; parameters as in ``push``."""
        own = torch.full_like(labels, IGNORE).masked_fill_(labels == known.classes, _ROW)
        self.push(features, own, keys, quota)
