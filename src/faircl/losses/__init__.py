"""Losses, one idea per module; equation numbers are those of the paper named in the same line.

=============================  =========================================================================================
module                         losses
=============================  =========================================================================================
``cross_entropy``              ``upsampled_cross_entropy``: cross-entropy at the size of the labels; class and pixel
                               weights, offsets, focal factor; ``grouped``: unbiased cross-entropy, Eqn 6 of MiB
``binary``                     ``upsampled_binary_cross_entropy``: one sigmoid per class (iCaRL, LwF-MC, SSUL)
``fairness``                   L_class, Eqn 6-7 of FairCL: ``importance_weights``, ``logit_offset``,
                               ``kl_from_uniform``, ``literal_class_loss``
``cluster``                    ``cluster_loss``: L_cluster, Eqn 8-9 of FairCL
``consistency``                ``consistency_loss``: L_cons, Eqn 14-15 of FairCL
``iou``                        ``iou_loss``: L_iou, minus the mean logarithm of the classes' IoU
``soft_cross_entropy``         ``soft_cross_entropy_sum``: cross-entropy with a few classes and their shares per cell
``replay``                     ``replay_loss``: cross-entropy of remembered features
``imbalance``                  ``effective_number_weights`` (Cui et al., CVPR 2019), ``pixel_seesaw`` (Wang et al., CVPR
                               2021), ``tilted_mean`` (Szabo et al., CVPRW 2021)
``distillation``               ``distillation`` (LwF), ``unbiased_distillation`` (Eqn 8-9 of MiB),
                               ``binary_distillation`` (LwF-MC), ``feature_distance`` (ILT)
``pod``                        ``local_pod``: local POD (PLOP)
``pooled_distillation``        ``spatial_pooled``, ``channel_pooled``: pooled cube distillation (RCIL)
``latent_space``               ``matching``, ``attraction``, ``repulsion``, ``sparsity`` (SDR)
``similarity_distillation``    ``similarity_distillation``: class-similarity weighted distillation, CSW-KD (REMINDER)
``attention_transfer``         ``attention_transfer``: class-wise attention distillation (SATS)
=============================  =========================================================================================

Not losses, but used by them: ``pixel_scores`` (log-sum-exp and target score of upsampled logits; GPU kernels or plain
torch), ``upsampled_per_image`` (any loss of upsampled logits, image by image), ``label_counts``.
"""

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
