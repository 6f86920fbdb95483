"""Mean embedding of every class over the images of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from faircl.distributed import global_sum
from faircl.labels import UNLABELLED
from faircl.methods.feature_grid import flat_features, to_stride

if TYPE_CHECKING:
    from faircl.methods.base import ScannedBatch, StepContext


class ClassMeans:
    """Mean embedding of every channel over the step's images, by the labels visible at the step.

    Every process adds the images that it scans; ``gather`` sums over processes.
    """

    def __init__(self, context: StepContext) -> None:
        self.context = context
        # The last row is for unlabelled pixels of data without a background class.
        self.rows = context.classes + 1
        like = context.model.mean.double()
        self.total = like.new_zeros((self.rows, context.model.embedding_width))
        self.count = like.new_zeros(self.rows)

    def add(self, scanned: ScannedBatch) -> None:
        """Add the pixels of a batch."""
        embedding = scanned.output.embedding
        labels = to_stride(scanned.labels, embedding.shape[-2:]).flatten()
        labels = labels.where(labels != UNLABELLED, self.rows - 1)
        # A product with one-hot rows: of the many pixels of few classes, index_add_ would wait for its own additions.
        member = (labels == torch.arange(self.rows, device=labels.device)[:, None]).double()
        self.total += member @ flat_features(embedding).double()
        self.count += member.sum(1)

    def gather(self) -> None:
        """Sum over all processes."""
        self.total, self.count = global_sum(self.total), global_sum(self.count)

    def classes(self) -> Tensor:
        """Return the means (K, D); NaN for a class without a pixel."""
        return (self.total / self.count[:, None]).to(self.context.model.mean.dtype)[:-1]

    def unlabelled(self) -> Tensor:
        """Return the mean of background, or of unlabelled pixels where there is none (D,); NaN without a pixel."""
        row = 0 if self.context.background else -1
        return (self.total[row] / self.count[row]).to(self.context.model.mean.dtype)
