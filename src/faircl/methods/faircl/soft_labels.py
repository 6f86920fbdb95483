"""Soft labels: the old network's class distribution at every cell of a step's fixed windows.

The old network sees every fixed window once, before the step. Of its softmax q at network stride the ``kept`` largest
classes of each cell are kept, in 8 bits each. This is distillation on exactly the windows that are trained on, with no
old network in memory during training. Labels that were made on whole images and then cut and zoomed would not do: they
are blurred by the resampling, and thin classes fade from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from faircl.distributed import global_sum
from faircl.labels import BACKGROUND
from faircl.loading.soft_labels import LEVELS, SoftBlock, SoftLabels
from faircl.losses.soft_cross_entropy import marked_pixels
from faircl.precision import at_least_float32


class SoftLabelScan:
    """Makes the soft labels of a step out of the old network's logits."""

    def __init__(self, kept: int) -> None:
        self.kept, self.labels = kept, SoftLabels()
        self._background = torch.zeros(2, dtype=torch.float64)

    @torch.no_grad()
    def add(self, windows: Sequence[int], logits: Tensor, unlabelled: Tensor) -> None:
        """Add scanned windows, given their numbers.

        Shapes: logits (B, K, h, w) of the old network; unlabelled (B, H, W) bool, pixels that count for
        ``background_share``.
        """
        q = at_least_float32(logits).permute(0, 2, 3, 1).softmax(3)
        shares, classes = q.topk(min(self.kept, q.shape[3]), dim=3)
        shares = (shares / shares.sum(3, keepdim=True) * LEVELS).round().to(torch.uint8)
        classes = classes.to(torch.uint8 if q.shape[3] <= 256 else torch.int16)
        self.labels.add(SoftBlock(tuple(windows), classes, shares))
        pixels = marked_pixels(unlabelled, (logits.shape[-2], logits.shape[-1]))
        # In double precision the sums do not depend on how windows are distributed over batches and processes.
        sums = [part.sum(dtype=torch.float64) for part in (q[..., BACKGROUND] * pixels, pixels)]
        self._background += torch.stack(sums).to(self._background)

    def gather(self) -> SoftLabels:
        """Return the soft labels of the windows of all processes, and keep none of them."""
        self.labels.gather()
        self._background = global_sum(self._background)
        labels, self.labels = self.labels, SoftLabels()
        return labels

    def background_share(self) -> float:
        """Return the share of background in the unlabelled pixels of the scan, summed over q; after ``gather``."""
        background, unlabelled = self._background.tolist()
        return background / unlabelled if unlabelled > 0 else 0.0
