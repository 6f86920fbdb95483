"""Prototypical contrastive clustering, Eqn 8-9."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from faircl.data.sample import IGNORE
from faircl.distributed import global_mean


class ClusterLoss(NamedTuple):
    """The two halves of L_cluster, each a scalar."""

    pull: Tensor
    push: Tensor


def cluster_loss(
    features: Tensor, labels: Tensor, prototypes: Tensor, active: Tensor, margin: float, order: float = 2.0
) -> ClusterLoss:
    r"""Pull features to their own prototype, push them beyond a margin from the others.

        pull = 1/N · Σ_i ℓ(f_i, p_{y_i})
        push = 1/(N·(A − 1)) · Σ_i Σ_{c ≠ y_i} max(0, Δ − ℓ(f_i, p_c))

    over the N pixels whose label is valid and has an active prototype, and the A active prototypes; ℓ is the
    ``order``-norm of the difference (2: Euclidean, as in the paper). Two means instead of Eqn 8's one sum, so that
    neither half fades or explodes with the crop size or the number of classes.

    Shapes: features (N, D); labels (N,) int64 with IGNORE; prototypes (K, D); active (K,) bool.
    """
    valid = labels != IGNORE
    labels = labels.where(valid, 0)
    valid = valid & active[labels]
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    prototypes = prototypes.to(features)
    # The own distance is often small, where ‖f‖² + ‖p‖² − 2·f·p cancels: it is taken exactly. The others matter near
    # the margin only, and by matrix product their gradient needs no (N, K, D) tensor.
    own = torch.linalg.vector_norm(features - prototypes[labels], ord=order, dim=1)
    distance = torch.cdist(features, prototypes, p=order, compute_mode="use_mm_for_euclid_dist")
    other = (active & valid[:, None]).scatter(1, labels[:, None], False)
    pull = (own * valid).sum()
    push = ((margin - distance).clamp_min(0) * other).sum()
    count = valid.sum()
    return ClusterLoss(global_mean(pull, count), global_mean(push, count * (active.sum() - 1)))
