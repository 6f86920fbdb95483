"""Latent-space losses of SDR: prototype matching, attraction and repulsion of features, sparsity.

Features are a map of the encoder with D channels, labels are at its stride; pixels whose label is not a class below K
(IGNORE, unlabelled) are left out. With y_i the label of pixel i and N_c the number of pixels of class c in the batch,
the batch mean of a class is

    μ_c = 1/N_c · Σ_{y_i=c} f_i.

The batch is that of all processes together. Prototypes get no gradient. Without any class a term and its gradient are
zero.

Shapes: features (B, D, h, w); labels (B, h, w) int64; prototypes (K, D); ready (K,) bool, which prototypes have a
value.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from faircl.distributed import all_gather, global_mean, global_sum, global_sum_with_grad, world_size
from faircl.losses.label_counts import count_labels
from faircl.precision import at_least_float32

DISTANCE_EPS = 1e-4
"""Added to squared distances of class means, so that the loss is finite for equal means."""
MIN_MEAN_MAGNITUDE = 1e-3
"""δ of the sparsity term: lower bound of the mean normalised magnitude that it divides by."""
MIN_CLASS_MAXIMUM = 1e-6
"""Lower bound of the class maximum that the sparsity term divides by."""


class ClassSums(NamedTuple):
    """Sums of features (K, D) and numbers of pixels (K,) per class."""

    total: Tensor
    pixels: Tensor

    def means(self) -> Tensor:
        """Return the means μ (K, D), zero for classes without a pixel."""
        return self.total / self.pixels.clamp_min(1)[:, None]


def class_sums(features: Tensor, labels: Tensor, classes: int) -> ClassSums:
    """Sum features per class over all processes; gradients averaged over processes are those of the global sum."""
    rows, labels = _flatten_pixels(features, labels, classes)
    total = rows.new_zeros((classes + 1, rows.shape[1])).index_add(0, labels, rows)[:-1]
    count = global_sum(count_labels(labels, classes + 1)[:-1])
    return ClassSums(global_sum_with_grad(total), count)


def matching(features: Tensor, labels: Tensor, prototypes: Tensor, ready: Tensor) -> Tensor:
    r"""Keep the batch mean of every old class close to its prototype of earlier steps.

        L = 1/A · Σ_c 1/D · ‖μ_c − p_c‖²

    over the A classes that are in the batch and have a prototype. Labels are old classes, mostly pseudo-labels.
    """
    sums = class_sums(features, labels, len(prototypes))
    active = ready & (sums.pixels > 0)
    distance = (sums.means() - prototypes.detach()).square().mean(1)
    return distance.where(active, 0.0).sum() / active.sum().clamp_min(1)


def attraction(features: Tensor, labels: Tensor, prototypes: Tensor, ready: Tensor) -> Tensor:
    r"""Pull every feature towards the prototype of its class; all classes have the same weight.

        L = 1/A · Σ_c 1/N_c · Σ_{y_i=c} 1/D · ‖f_i − p_c‖²

    over the A classes that are in the batch and have a prototype.
    """
    rows, labels = _flatten_pixels(features, labels, len(prototypes))
    count = global_sum(count_labels(labels, len(prototypes) + 1))
    active = (count > 0) & _append_zero_row(ready)
    weight = active.to(rows) / (count.clamp_min(1) * active.sum().clamp_min(1))
    distance = (rows - _append_zero_row(prototypes.detach())[labels]).square().mean(1)
    return world_size() * (distance * weight[labels]).sum()


def repulsion(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    r"""Push the class means of the batch away from each other.

        L = 1/(A·(A − 1)) · Σ_c Σ_{k≠c} 1 / √(‖μ_c − μ_k‖² + ε)

    over ordered pairs of the A classes in the batch, with ε = DISTANCE_EPS; zero for fewer than two classes.
    """
    sums = class_sums(features, labels, classes)
    present = sums.pixels > 0
    pair = (present[:, None] & present).fill_diagonal_(False)
    means = sums.means()
    # The faster matrix-product form is inaccurate for small distances, which matter most here.
    distance = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    inverse_distance = (distance.square() + DISTANCE_EPS).rsqrt()
    return inverse_distance.where(pair, 0.0).sum() / pair.sum().clamp_min(1)


def sparsity(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    r"""Encourage features with few active channels: ratio of the sum of exponentials to the sum of magnitudes.

        L = 1/N · Σ_i  Σ_j exp g_{i,j} / max(Σ_j g_{i,j}, δ·D),   g_i = |f_i| / max_{k: y_k=y_i, j} |f_{k,j}|

    over the N pixels that have a class. Magnitudes are normalised by their maximum over all pixels and channels of the
    class. The maximum has a gradient, so the loss does not depend on the scale of the features. The paper has f instead
    of |f|, which is the same after a ReLU; |f| keeps the ratio positive for other encoders. δ = 1e-3 keeps it finite
    for zero features.
    """
    rows, labels = _flatten_pixels(features, labels, classes)
    magnitude, valid = rows.abs(), labels < classes
    local_maximum = magnitude.new_zeros(classes + 1).scatter_reduce(0, labels, magnitude.amax(1), "amax")
    maximum = all_gather(local_maximum).amax(0)
    normalised = magnitude / maximum.clamp_min(MIN_CLASS_MAXIMUM)[labels][:, None]
    exponential, normalised_sum = normalised.exp(), normalised.sum(1)
    floor = MIN_MEAN_MAGNITUDE * normalised.shape[1]
    ratio = exponential.sum(1) / normalised_sum.clamp_min(floor)
    total = ratio.where(valid, 0.0).sum()
    with torch.no_grad():
        # The pixels of all processes depend on a maximum that one process holds, so their derivatives by it are
        # summed there. For one pixel the derivative of the ratio by the maximum is −1/max · Σ_j g_j·∂ratio/∂g_j.
        derivative = (
            ratio * normalised_sum * (normalised_sum > floor) - (normalised * exponential).sum(1)
        ) / normalised_sum.clamp_min(floor)
        derivatives = global_sum(torch.zeros_like(local_maximum).index_add(0, labels, derivative.where(valid, 0.0)))
        derivatives = (
            derivatives
            * ((local_maximum == maximum) & (maximum > MIN_CLASS_MAXIMUM))
            / maximum.clamp_min(MIN_CLASS_MAXIMUM)
        )
    return global_mean(total + (derivatives * (local_maximum - local_maximum.detach())).sum(), valid.sum())


def _flatten_pixels(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return features (N, D), at least float32, and labels (N,), K for pixels that are left out."""
    features = at_least_float32(features)
    # Channels last first: selecting pixels from (B, D, h, w) by a flat mask would mix images and channels.
    rows = features.permute(0, 2, 3, 1).flatten(0, 2)
    labels = labels.flatten()
    return rows, labels.where(labels < classes, classes)


def _append_zero_row(rows: Tensor) -> Tensor:
    """Append a row of zeros for pixels that are left out: (K, …) to (K + 1, …)."""
    return torch.cat([rows, rows.new_zeros((1, *rows.shape[1:]))])
