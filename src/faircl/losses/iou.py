"""L_iou: minus the mean logarithm of the classes' IoU, predicted probabilities against labels, hard or soft."""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.distributed import global_sum, global_sum_with_grad
from faircl.labels import IGNORE


def iou_loss(probability: Tensor, target: Tensor) -> Tensor:
    r"""Return −mean_c log IoU_c over the classes that a batch shows.

        IoU_c = (I_c + ½) / (U_c + ½),    I_c = Σ min(t_c, p_c),    U_c = Σ max(t_c, p_c)

    with sums over all cells of the batch (of all processes). For hard labels it is the soft Jaccard index. Unlike
    Σ t·p / Σ (t + p − t·p) it is largest at p = t for soft labels, too (Wang et al., NeurIPS 2023). The logarithm makes
    the sum over classes proportionally fair: what counts is by how many percent a class gains. ½ a cell keeps the
    gradient of a class that is not found finite. Classes of which the batch shows less than one cell are left out; 0 if
    none is left.

    Shapes: probability and target (B, K, h, w), both 0 where nothing is known.
    """
    # By min, max(t, p) = (t + p ∓ |t − p|)/2, whose gradient needs fewer passes over the maps.
    shown = global_sum(target.sum((0, 2, 3)))
    total = shown + global_sum_with_grad(probability.sum((0, 2, 3)))
    difference = global_sum_with_grad((target - probability).abs().sum((0, 2, 3)))
    loss = torch.log((total + difference + 1) / (total - difference + 1))
    return loss.where(shown >= 1, 0.0).sum() / (shown >= 1).sum().clamp_min(1)


def label_shares(labels: Tensor, classes: int) -> Tensor:
    """Return the share of every cell's labels that is each class: (B, h, s, w, s) int64 to (B, classes + 1, h, w).

    A cell has s·s labels; its shares sum to one. The last channel is that of IGNORE.
    """
    images, rows, high, columns, wide = labels.shape
    cell = torch.arange(rows * columns, device=labels.device).view(rows, 1, columns, 1)
    image = torch.arange(images, device=labels.device).view(images, 1, 1, 1, 1) * (classes + 1)
    index = (image + labels.where(labels != IGNORE, classes)) * (rows * columns) + cell
    shares = torch.zeros(images * (classes + 1) * rows * columns, device=labels.device)
    each = shares.new_full((), 1 / (high * wide)).expand(index.numel())
    return shares.index_add_(0, index.flatten(), each).view(images, classes + 1, rows, columns)
