"""Losses: one idea per file."""

from faircl.losses.cluster import ClusterLoss, cluster_loss
from faircl.losses.consistency import consistency_loss
from faircl.losses.cross_entropy import upsampled_cross_entropy
from faircl.losses.fairness import (
    class_histogram,
    importance_weights,
    kl_from_uniform,
    literal_class_loss,
    logit_offset,
)

__all__ = [
    "ClusterLoss",
    "class_histogram",
    "cluster_loss",
    "consistency_loss",
    "importance_weights",
    "kl_from_uniform",
    "literal_class_loss",
    "logit_offset",
    "upsampled_cross_entropy",
]
