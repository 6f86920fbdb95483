r"""Scores of a pixel's feature f (D,): larger where it is farther from what is remembered of the known classes.

Each class below is made from the remembered features and called with rows: features (n, D) float32 to scores (n,).
``of_known`` are the scores of the remembered features themselves, by which the others are judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.deploy.known_features import KnownFeatures

NEIGHBOURS = 10
CELLS = 2**24
"""Entries of the largest matrix that is made at a time: 64 MiB."""


def in_parts(compute: Callable[..., Tensor], *rows: Tensor, width: int) -> Tensor:
    """Return what ``compute`` makes of tensors of n rows, (n,), from so many rows at a time that n·width ≤ CELLS."""
    size = max(CELLS // width, 1)
    parts = (slice(start, start + size) for start in range(0, len(rows[0]), size))
    return torch.cat([compute(*(tensor[part] for tensor in rows)) for part in parts])


class FeatureScore(Protocol):
    """A score that is made from remembered features."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Score rows (n, D)."""
        ...

    def of_known(self) -> Tensor:
        """Score the remembered features (M, D)."""
        ...


def squared_distances(rows: Tensor, centres: Tensor) -> Tensor:
    """Return ‖f − p‖² of rows (n, D) and centres (K, D), (n, K), by one matrix product.

    Both are moved by the centres' mean first: the product loses digits where norms are larger than distances.
    """
    origin = centres.mean(0)
    rows, centres = rows - origin, centres - origin
    product = torch.addmm(rows.square().sum(1, keepdim=True), rows, centres.T, alpha=-2)
    return (product + centres.square().sum(1)).clamp_min(0)


class PrototypeDistance:
    """min_c ‖f − p_c‖ / σ_c, where σ_c² is the mean of ‖x − p_c‖² over the remembered features x of class c.

    The centres p_c are FairCL's prototypes, or others of the same shape (K, D).
    """

    def __init__(self, known: KnownFeatures, centres: Tensor | None = None) -> None:
        self.known, self.centres = known, known.prototypes if centres is None else centres
        own = (known.features - self.centres[known.classes]).square().sum(1)
        # A class of one feature has no spread of its own.
        self.spread = known.class_means(own).clamp_min(0.01 * own.mean()).clamp_min(torch.finfo(own.dtype).tiny)

    def __call__(self, rows: Tensor) -> Tensor:
        """Score rows."""
        return (squared_distances(rows, self.centres) / self.spread).amin(1).sqrt()

    def of_known(self) -> Tensor:
        """Score the remembered features."""
        return self(self.known.features)


class MeanDistance(PrototypeDistance):
    """The same with the means μ_c of the remembered features as centres: they do not lag behind the network."""

    def __init__(self, known: KnownFeatures) -> None:
        super().__init__(known, known.class_means(known.features))


class MeanAngle(PrototypeDistance):
    """The same of unit vectors: min_c ‖f/‖f‖ − μ_c/‖μ_c‖‖ / σ_c, so that angles count and lengths do not."""

    def __init__(self, known: KnownFeatures) -> None:
        unit = replace(known, features=F.normalize(known.features, dim=1))
        super().__init__(unit, F.normalize(known.class_means(known.features), dim=1))

    def __call__(self, rows: Tensor) -> Tensor:
        """Score rows."""
        return super().__call__(F.normalize(rows, dim=1))


@dataclass(frozen=True)
class Gaussian:
    """Gaussians of one covariance: ``centres`` (K, D) and ``whitening`` W (D, D), both after the map f·W."""

    whitening: Tensor
    centres: Tensor

    @classmethod
    def fit(cls, residuals: Tensor, centres: Tensor) -> Gaussian:
        r"""Fit Σ to residuals (M, D) and shrink it: Σ_α = (1 − α)·Σ + α·(tr Σ / D)·I, W·Wᵀ = Σ_α⁻¹.

        α is the oracle approximating shrinkage of Chen et al. (2010, equation 23), which has no parameter.
        """
        m, d = residuals.shape
        exact = residuals.double()
        covariance = exact.T @ exact / m
        trace, squared = covariance.trace(), covariance.square().sum()
        over = (m + 1 - 2 / d) * (squared - trace**2 / d)
        alpha = (((1 - 2 / d) * squared + trace**2) / over).nan_to_num(1.0).clamp(0, 1)
        shrunk = (1 - alpha) * covariance
        shrunk.diagonal().add_(alpha * trace / d)
        values, vectors = torch.linalg.eigh(shrunk)
        values = values.clamp_min(values.amax() * 1e-9).clamp_min(1e-12)
        whitening = vectors / values.sqrt()
        return cls(whitening.float(), (centres.double() @ whitening).float())

    def __call__(self, rows: Tensor) -> Tensor:
        """Return min_c (f − μ_c)ᵀ·Σ_α⁻¹·(f − μ_c) of rows (n, D), (n,)."""
        return squared_distances(rows @ self.whitening, self.centres).amin(1)


class Mahalanobis:
    """min_c (f − μ_c)ᵀ·Σ⁻¹·(f − μ_c): class means μ_c, one shrunk covariance within classes (Lee et al. 2018)."""

    def __init__(self, known: KnownFeatures) -> None:
        self.known = known
        means = known.class_means(known.features)
        self.within = Gaussian.fit(known.features - means[known.classes], means)

    def __call__(self, rows: Tensor) -> Tensor:
        """Score rows."""
        return self.within(rows)

    def of_known(self) -> Tensor:
        """Score the remembered features."""
        return self(self.known.features)


class RelativeMahalanobis(Mahalanobis):
    """Mahalanobis − (f − μ)ᵀ·Σ_0⁻¹·(f − μ): mean μ and covariance Σ_0 of all features (Ren et al. 2021)."""

    def __init__(self, known: KnownFeatures) -> None:
        super().__init__(known)
        mean = known.features.mean(0, keepdim=True)
        self.overall = Gaussian.fit(known.features - mean, mean)

    def __call__(self, rows: Tensor) -> Tensor:
        """Score rows; one that overflows both distances is as far as can be."""
        return (self.within(rows) - self.overall(rows)).nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)


class NearestFeatures:
    """Distance of f / ‖f‖ to its k-th nearest remembered feature, of unit length too, k = 10 (Sun et al. 2022)."""

    def __init__(self, known: KnownFeatures, neighbours: int = NEIGHBOURS) -> None:
        self.known = F.normalize(known.features, dim=1)
        self.neighbours = min(neighbours, max(len(self.known) - 1, 1))

    def __call__(self, rows: Tensor) -> Tensor:
        """Score rows."""
        return self._distance(F.normalize(rows, dim=1), self.neighbours)

    def of_known(self) -> Tensor:
        """Score the remembered features; a feature is not its own neighbour."""
        return self._distance(self.known, min(self.neighbours + 1, len(self.known)))

    def _distance(self, rows: Tensor, k: int) -> Tensor:
        def kth(part: Tensor) -> Tensor:
            nearest = squared_distances(part, self.known).topk(k, dim=1, largest=False, sorted=False)
            return nearest.values.amax(1).sqrt()

        return in_parts(kth, rows, width=len(self.known))
