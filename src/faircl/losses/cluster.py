"""L_cluster, prototypical contrastive clustering, Eqn 8-9 of FairCL."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl import kernels
from faircl.distributed import global_mean
from faircl.labels import IGNORE
from faircl.precision import at_least_float32_dtype

MAX_PIXELS = 2**19
"""Largest number of pixels whose distances to all prototypes are stored at a time, unless one image has more."""

MAX_FLOAT16 = torch.finfo(torch.float16).max


class ClusterLoss(NamedTuple):
    """The two terms of L_cluster, each a scalar."""

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
    r"""Pull features towards the prototype of their class and push them away from the others, up to a margin.

        pull = 1/N · Σ_i ℓ(f_i, p_{y_i})
        push = 1/(N·(A − 1)) · Σ_i Σ_{c ≠ y_i} max(0, Δ − ℓ(f_i, p_c))

    N is the number of pixels whose label is not IGNORE and has an active prototype, A the number of active prototypes
    and Δ the margin. ℓ is the ``order``-norm of the difference (2: Euclidean, as in the paper). Two means replace the
    sum of Eqn 8, so that the scale of both terms is independent of crop size and number of classes. Prototypes get no
    gradient.

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
    else:  # for comparison only: its gradient needs a (K, D) tensor per pixel
        dtype = at_least_float32_dtype(features)
        distance = torch.cdist(features.to(dtype).mT, prototypes.to(dtype), p=order).mT
        pushing = _pushing(labels, valid, active)
        pull = (distance.gather(1, labels[:, None])[:, 0] * valid).sum()
        push = ((margin - distance).clamp_min(0) * pushing).sum()
    count = valid.sum()
    return ClusterLoss(global_mean(pull, count), global_mean(push, count * (active.sum() - 1)))


def _pushing(labels: Tensor, valid: Tensor, active: Tensor) -> Tensor:
    """Return which prototypes push a pixel: labels, valid (B, s), active (K,) to (B, K, s) bool."""
    return (active[:, None] & valid[:, None]).scatter(1, labels[:, None], False)


class _EuclideanSums(torch.autograd.Function):
    r"""Sums of pull and push over pixels, some images at a time; the backward pass recomputes the distances.

    With d_c = ‖f − p_c‖, the gradient of α·pull + β·push at a pixel is Σ_c r_c·(f − p_c) = f·Σ_c r_c − Pᵀr, where
    r_y = α/d_y, r_c = −β/d_c for other prototypes within the margin and 0 beyond it. That is one matrix product, and
    distances (B, K, s) are stored for some images at a time.

    The distance to the own prototype is often small, and ‖f‖² + ‖p‖² − 2·f·p then suffers from cancellation, so it is
    computed from f − p. For 16-bit features it is not: their own rounding error is larger.

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
        dtype = at_least_float32_dtype(features)
        prototypes = prototypes.to(dtype)
        ctx.save_for_backward(features, labels, valid, prototypes, active)
        ctx.margin = margin
        pull, push = prototypes.new_zeros(()), prototypes.new_zeros(())
        for f, y, v in _image_chunks(features, labels, valid):
            distance = _prototype_distances(f, prototypes, active)
            own = (
                distance.gather(1, y[:, None])[:, 0]
                if f.dtype != dtype
                else _own_difference(f, y, prototypes).norm(dim=1)
            )
            pull += (own * v).sum()
            push += torch.rsub(distance, margin).clamp_min_(0).mul_(_pushing(y, v, active)).sum()
        return pull, push

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, alpha: Tensor, beta: Tensor) -> tuple[Tensor | None, ...]:
        features, labels, valid, prototypes, active = ctx.saved_tensors
        gradient = torch.empty_like(features)
        # α and β contain 1/N and would underflow in 16 bits; they are divided by their scale, which is multiplied back.
        scale = torch.maximum(alpha.abs(), beta.abs()).clamp_min_(torch.finfo(alpha.dtype).tiny)
        alpha, beta = alpha / scale, beta / scale
        for f, y, v, g in _image_chunks(features, labels, valid, gradient):
            distance = _prototype_distances(f, prototypes, active)
            coefficient = ((distance < ctx.margin) & _pushing(y, v, active)) * -beta
            if f.dtype != distance.dtype:
                coefficient.scatter_(1, y[:, None], (v * alpha)[:, None])
            coefficient.div_(distance)
            if f.dtype == torch.float16:
                # At distance 0 the difference f − p is 0 too, and 0·∞ would be NaN.
                coefficient.clamp_(-MAX_FLOAT16, MAX_FLOAT16)
            # Rounded before both uses, so that the two terms below have the same coefficients and cancel correctly.
            coefficient = coefficient.to(f.dtype)
            total = _weighted_prototypes(coefficient, -prototypes).addcmul_(
                f, coefficient.sum(1, keepdim=True, dtype=distance.dtype)
            )
            if f.dtype == distance.dtype:
                difference = _own_difference(f, y, prototypes)
                own = difference.norm(dim=1, keepdim=True).clamp_min_(torch.finfo(f.dtype).tiny)
                total.addcmul_(difference, (v * alpha)[:, None] / own)
            g.copy_(total.mul_(scale))
        return gradient, None, None, None, None, None


def _image_chunks(features: Tensor, *maps: Tensor) -> Any:
    """Split maps (B, …) into chunks of at most MAX_PIXELS pixels, or of one image."""
    images = max(1, MAX_PIXELS // max(features.shape[2], 1))
    return zip(*(torch.split(m, images) for m in (features, *maps)), strict=True)


def _own_difference(features: Tensor, labels: Tensor, prototypes: Tensor) -> Tensor:
    """Return f − p_y, (B, D, s)."""
    return features - prototypes.t()[:, labels].transpose(0, 1)


def _prototype_distances(features: Tensor, prototypes: Tensor, active: Tensor) -> Tensor:
    """Return the distance of every pixel to every prototype: (B, D, s), (K, D) to (B, K, s), at least float32.

    ‖f‖² + ‖p‖² − 2·f·p is clamped from below to its rounding error, the rounding of its largest term over active (K,)
    prototypes.
    """
    info = torch.finfo(prototypes.dtype)
    norms = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=prototypes.dtype).square_()
    squares = prototypes.square().sum(1)
    floor = ((norms + squares.where(active, 0).max()) * info.eps).clamp_min_(info.tiny)
    distances: Tensor = _prototype_products(features, -2 * prototypes).add_(squares[:, None]).add_(norms)
    return distances.clamp_min_(floor).sqrt_()


# On a GPU 16-bit maps are multiplied without a float32 copy: tensor cores accumulate in float32, and prototypes are
# split into the sum of two 16-bit matrices, which is far more precise than the maps.


def _prototype_products(features: Tensor, prototypes: Tensor) -> Tensor:
    """Return P·f: (B, D, s), (K, D) to (B, K, s)."""
    if not _use_split_matmul(features, prototypes):
        return prototypes @ features.to(prototypes.dtype)
    split = torch.cat(_split_16bit(prototypes, features.dtype)).expand(len(features), -1, -1)
    product: Tensor = torch.bmm(split, features, out_dtype=torch.float32)
    high, low = product.chunk(2, 1)
    return high.add_(low)


def _weighted_prototypes(coefficient: Tensor, prototypes: Tensor) -> Tensor:
    """Return Pᵀ·r: (B, K, s), (K, D) to (B, D, s)."""
    if not _use_split_matmul(coefficient, prototypes):
        return prototypes.t() @ coefficient.to(prototypes.dtype)
    split = torch.cat(_split_16bit(prototypes.t(), coefficient.dtype), 1).expand(len(coefficient), -1, -1)
    weighted_sum: Tensor = torch.bmm(split, torch.cat([coefficient, coefficient], 1), out_dtype=torch.float32)
    return weighted_sum


def _use_split_matmul(maps: Tensor, prototypes: Tensor) -> bool:
    return maps.dtype != prototypes.dtype and maps.device.type == "cuda"


def _split_16bit(matrix: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    high = matrix.to(dtype)
    return high, (matrix - high).to(dtype)
