"""Terms that shape the latent space by class: matching, attraction, repulsion and sparsity (SDR).

Features are a map of the encoder, labels are at its stride. A label that is no class below K (ignored, unlabelled) does
not count. With y_i the label of pixel i, N_c the pixels of class c in the batch and D channels,

    μ_c = 1/N_c · Σ_{y_i=c} f_i

is the batch's mean of a class. Batches are those of all processes together. Prototypes get no gradient. Where no class
counts a term is zero, and its gradient too.

Shapes: features (B, D, h, w); labels (B, h, w) int64; prototypes (K, D); ready (K,) bool, whether a prototype has a
value. The channel axis goes last before pixels are told apart: a mask over (B, D, h, w) mixes images and channels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from faircl.distributed import all_gather, global_mean, global_sum, global_sum_with_grad, world_size
from faircl.losses.counting import count_labels
from faircl.precision import at_least_float32

CLOSE = 1e-4
"""Added to squared distances of class means: equal means repel by a finite force."""
DULL = 1e-3
"""Smallest mean channel that the sparsity term divides by, as a part of the class's largest."""
TINY = 1e-6
"""Smallest class maximum that the sparsity term divides by."""


class ClassSums(NamedTuple):
    """Sums of features and numbers of pixels by class. Shapes: total (K, D); pixels (K,)."""

    total: Tensor
    pixels: Tensor

    def means(self) -> Tensor:
        """Return μ (K, D); zeros for a class without a pixel."""
        return self.total / self.pixels.clamp_min(1)[:, None]


def class_sums(features: Tensor, labels: Tensor, classes: int) -> ClassSums:
    """Sum features by class over all processes; the gradient, averaged over processes, is that of the whole sum."""
    rows, labels = _pixels(features, labels, classes)
    total = rows.new_zeros((classes + 1, rows.shape[1])).index_add(0, labels, rows)[:-1]
    count = global_sum(count_labels(labels, classes + 1)[:-1])
    return ClassSums(global_sum_with_grad(total), count)


def matching(features: Tensor, labels: Tensor, prototypes: Tensor, ready: Tensor) -> Tensor:
    r"""Keep the batch's mean of an old class at the prototype that earlier steps left.

        L = 1/A · Σ_c 1/D · ‖μ_c − p_c‖²

    over the A classes that are in the batch and have a prototype. Labels: old classes, mostly guessed.
    """
    sums = class_sums(features, labels, len(prototypes))
    active = ready & (sums.pixels > 0)
    distance = (sums.means() - prototypes.detach()).square().mean(1)
    return distance.where(active, 0.0).sum() / active.sum().clamp_min(1)


def attraction(features: Tensor, labels: Tensor, prototypes: Tensor, ready: Tensor) -> Tensor:
    r"""Draw every feature to its class's prototype; classes weigh the same, however many pixels they have.

        L = 1/A · Σ_c 1/N_c · Σ_{y_i=c} 1/D · ‖f_i − p_c‖²

    over the A classes that are in the batch and have a prototype.
    """
    rows, labels = _pixels(features, labels, len(prototypes))
    count = global_sum(count_labels(labels, len(prototypes) + 1))
    active = (count > 0) & _and_none(ready)
    weight = active.to(rows) / (count.clamp_min(1) * active.sum().clamp_min(1))
    distance = (rows - _and_none(prototypes.detach())[labels]).square().mean(1)
    return world_size() * (distance * weight[labels]).sum()


def repulsion(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    r"""Push the batch's class means apart.

        L = 1/(A·(A − 1)) · Σ_c Σ_{k≠c} 1 / √(‖μ_c − μ_k‖² + ε)

    over the A classes in the batch, each pair met from both ends; zero for fewer than two.
    """
    sums = class_sums(features, labels, classes)
    present = sums.pixels > 0
    pair = (present[:, None] & present).fill_diagonal_(False)
    means = sums.means()
    # The quick way, by products, loses the small distances that matter most here.
    distance = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    force = (distance.square() + CLOSE).rsqrt()
    return force.where(pair, 0.0).sum() / pair.sum().clamp_min(1)


def sparsity(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    r"""Ratio of a stretched sum of a feature's channels to the plain one.

        L = 1/N · Σ_i  Σ_j exp g_{i,j} / max(Σ_j g_{i,j}, δ·D),   g_i = |f_i| / max_{k: y_k=y_i, j} |f_{k,j}|

    over the N pixels that have a class. One number per class, its largest channel of any pixel, normalises; it has a
    gradient, so the term does not change with the scale of the features. The magnitude is the paper's feature wherever
    an encoder ends in a ReLU, and keeps the ratio positive elsewhere; δ = 1e-3 keeps it finite for features of zeros.
    """
    rows, labels = _pixels(features, labels, classes)
    size, valid = rows.abs(), labels < classes
    own = size.new_zeros(classes + 1).scatter_reduce(0, labels, size.amax(1), "amax")
    largest = all_gather(own).amax(0)
    part = size / largest.clamp_min(TINY)[labels][:, None]
    stretched, plain = part.exp(), part.sum(1)
    floor = DULL * part.shape[1]
    ratio = stretched.sum(1) / plain.clamp_min(floor)
    total = ratio.where(valid, 0.0).sum()
    with torch.no_grad():
        # All processes' pixels depend on a maximum, but one process holds it: their slopes meet there. The slope of
        # a pixel's ratio by the maximum is −1/max · Σ_j g_j·∂/∂g_j.
        slope = (ratio * plain * (plain > floor) - (part * stretched).sum(1)) / plain.clamp_min(floor)
        slopes = global_sum(torch.zeros_like(own).index_add(0, labels, slope.where(valid, 0.0)))
        slopes = slopes * ((own == largest) & (largest > TINY)) / largest.clamp_min(TINY)
    return global_mean(total + (slopes * (own - own.detach())).sum(), valid.sum())


def _pixels(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Features (N, D), at least float32, and labels (N,), with K for a pixel that does not count."""
    features = at_least_float32(features)
    rows = features.permute(0, 2, 3, 1).flatten(0, 2)
    labels = labels.flatten()
    return rows, labels.where(labels < classes, classes)


def _and_none(table: Tensor) -> Tensor:
    """Add a row of zeros for pixels that do not count: (K, …) to (K + 1, …)."""
    return torch.cat([table, table.new_zeros((1, *table.shape[1:]))])
