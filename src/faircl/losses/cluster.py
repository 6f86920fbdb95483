"""Prototypical contrastive clustering, Eqn 8-9."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl import kernels
from faircl.distributed import global_mean
from faircl.labels import IGNORE
from faircl.precision import at_least_float32_dtype

PIXELS = 2**19
"""Pixels whose distances to all prototypes exist at a time."""


class ClusterLoss(NamedTuple):
    """The two halves of L_cluster, each a scalar."""

    pull: Tensor
    push: Tensor


def cluster_loss(
    features: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    active: Tensor,
    margin: float,
    order: float = 2.0,
) -> ClusterLoss:
    r"""Pull features to their own prototype, push them beyond a margin from the others.

        pull = 1/N · Σ_i ℓ(f_i, p_{y_i})
        push = 1/(N·(A − 1)) · Σ_i Σ_{c ≠ y_i} max(0, Δ − ℓ(f_i, p_c))

    over the N pixels whose label is valid and has an active prototype, and the A active prototypes; ℓ is the
    ``order``-norm of the difference (2: Euclidean, as in the paper). Two means instead of Eqn 8's one sum, so that
    neither half fades or explodes with the crop size or the number of classes. Prototypes get no gradient.

    Shapes: features (B, D, h, w) with labels (B, h, w), or (N, D) with (N,); labels int64 with IGNORE; prototypes
    (K, D); active (K,) bool.
    """
    if features.ndim == 2:
        features, labels = features.t()[None], labels[None]
    features, labels = features.flatten(2), labels.flatten(1)
    valid = labels != IGNORE
    labels = labels.where(valid, 0)
    valid = valid & active[labels]
    prototypes = prototypes.detach()
    if order == 2 and kernels.usable(features):
        from faircl.kernels.cluster import cluster_sums

        pull, push = cluster_sums(features, labels, valid, prototypes, active, margin)
    elif order == 2:
        pull, push = _EuclideanSums.apply(features, labels, valid, prototypes, active, margin)
    else:  # for comparison only: its gradient makes a (K, D) tensor per pixel
        exact = at_least_float32_dtype(features)
        distance = torch.cdist(features.to(exact).mT, prototypes.to(exact), p=order).mT
        other = _other(labels, valid, active)
        pull = (distance.gather(1, labels[:, None])[:, 0] * valid).sum()
        push = ((margin - distance).clamp_min(0) * other).sum()
    count = valid.sum()
    return ClusterLoss(global_mean(pull, count), global_mean(push, count * (active.sum() - 1)))


def _other(labels: Tensor, valid: Tensor, active: Tensor) -> Tensor:
    """Whether a prototype pushes a pixel: labels, valid (B, s), active (K,) to (B, K, s) bool."""
    return (active[:, None] & valid[:, None]).scatter(1, labels[:, None], False)


class _EuclideanSums(torch.autograd.Function):
    r"""Sums of pulls and of pushes over pixels, some images at a time; backward computes the distances again.

    With d_c = ‖f − p_c‖, the gradient of α·pull + β·push at a pixel is Σ_c r_c·(f − p_c) = f·Σ_c r_c − Pᵀr, where
    r_y = α/d_y and r_c = −β/d_c for the others within the margin: one product with the prototypes, and neither
    (B, K, s) nor a copy of the features outlives its images.

    The own distance is often small, where ‖f‖² + ‖p‖² − 2·f·p cancels: it is taken from f − p, but for features of
    16 bits, whose rounding is larger.

    Shapes: features (B, D, s), labels and valid (B, s), prototypes (K, D), active (K,).
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        labels: Tensor,
        valid: Tensor,
        prototypes: Tensor,
        active: Tensor,
        margin: float,
    ) -> tuple[Tensor, Tensor]:
        exact = at_least_float32_dtype(features)
        prototypes = prototypes.to(exact)
        ctx.save_for_backward(features, labels, valid, prototypes, active)
        ctx.margin = margin
        pull, push = prototypes.new_zeros(()), prototypes.new_zeros(())
        for f, y, v in _parts(features, labels, valid):
            distance = _distances(f, prototypes)
            own = distance.gather(1, y[:, None])[:, 0] if f.dtype != exact else _apart(f, y, prototypes).norm(dim=1)
            pull += (own * v).sum()
            push += torch.rsub(distance, margin).clamp_min_(0).mul_(_other(y, v, active)).sum()
        return pull, push

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, alpha: Tensor, beta: Tensor) -> tuple[Tensor | None, ...]:
        features, labels, valid, prototypes, active = ctx.saved_tensors
        gradient = torch.empty_like(features)
        # Means over all pixels make rates too small for 16 bits: the scale comes back at the end.
        scale = torch.maximum(alpha.abs(), beta.abs()).clamp_min_(torch.finfo(alpha.dtype).tiny)
        alpha, beta = alpha / scale, beta / scale
        for f, y, v, g in _parts(features, labels, valid, gradient):
            distance = _distances(f, prototypes)
            rate = ((distance < ctx.margin) & _other(y, v, active)) * -beta
            if f.dtype != distance.dtype:
                rate.scatter_(1, y[:, None], (v * alpha)[:, None])
            # Rounded before both uses, rates of 16 bits are other rates by a part in 256, and nothing cancels wrongly.
            rate = rate.div_(distance).to(f.dtype)
            total = _drawn(rate, -prototypes).addcmul_(f, rate.sum(1, keepdim=True, dtype=distance.dtype))
            if f.dtype == distance.dtype:
                apart = _apart(f, y, prototypes)
                own = apart.norm(dim=1, keepdim=True).clamp_min_(torch.finfo(f.dtype).tiny)
                total.addcmul_(apart, (v * alpha)[:, None] / own)
            g.copy_(total.mul_(scale))
        return gradient, None, None, None, None, None


def _parts(features: Tensor, *maps: Tensor) -> Any:
    """Split maps (B, …) into runs of images that hold at most PIXELS pixels, or one image."""
    images = max(1, PIXELS // max(features.shape[2], 1))
    return zip(*(torch.split(m, images) for m in (features, *maps)), strict=True)


def _apart(features: Tensor, labels: Tensor, prototypes: Tensor) -> Tensor:
    """Difference of every feature to its own prototype, (B, D, s)."""
    return features - prototypes.t()[:, labels].transpose(0, 1)


def _distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """Distance of every pixel to every prototype: (B, D, s), (K, D) to (B, K, s), at least float32.

    ‖f‖² + ‖p‖² − 2·f·p is exact up to the rounding of its largest part, so no distance is below that.
    """
    number = torch.finfo(prototypes.dtype)
    norms = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=prototypes.dtype).square_()
    squares = prototypes.square().sum(1)
    floor = ((norms + squares.max()) * number.eps).clamp_min_(number.tiny)
    distances: Tensor = _products(features, -2 * prototypes).add_(squares[:, None]).add_(norms)
    return distances.clamp_min_(floor).sqrt_()


# On a GPU maps of 16 bits need no copy of 32 to be multiplied: tensor cores add up in 32, and prototypes are split
# into two matrices of 16 bits whose sum is far finer than the maps.


def _products(features: Tensor, prototypes: Tensor) -> Tensor:
    """P·f: (B, D, s), (K, D) to (B, K, s)."""
    if not _in_halves(features, prototypes):
        return prototypes @ features.to(prototypes.dtype)
    halves = torch.cat(_halves(prototypes, features.dtype)).expand(len(features), -1, -1)
    both: Tensor = torch.bmm(halves, features, out_dtype=torch.float32)
    high, low = both.chunk(2, 1)
    return high.add_(low)


def _drawn(rate: Tensor, prototypes: Tensor) -> Tensor:
    """Pᵀ·r: (B, K, s), (K, D) to (B, D, s)."""
    if not _in_halves(rate, prototypes):
        return prototypes.t() @ rate.to(prototypes.dtype)
    halves = torch.cat(_halves(prototypes.t(), rate.dtype), 1).expand(len(rate), -1, -1)
    drawn: Tensor = torch.bmm(halves, torch.cat([rate, rate], 1), out_dtype=torch.float32)
    return drawn


def _in_halves(maps: Tensor, prototypes: Tensor) -> bool:
    return maps.dtype != prototypes.dtype and maps.device.type == "cuda"


def _halves(matrix: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    high = matrix.to(dtype)
    return high, (matrix - high).to(dtype)
