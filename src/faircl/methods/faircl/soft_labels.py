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
    """Makes the soft labels of a step out of the old network's logits over ``classes`` old classes.

    It also sums q over the pixels of the step, apart for unlabelled ones and those of new classes:
    ``background_share`` and ``taken``, once ``gather`` has added up the sums of all processes.
    """

    def __init__(self, kept: int, classes: int) -> None:
        self.kept, self.labels = kept, SoftLabels()
        self._found = torch.zeros((2, classes), dtype=torch.float64)

    @torch.no_grad()
    def add(self, windows: Sequence[int], logits: Tensor, unlabelled: Tensor, new: Tensor) -> None:
        """Add scanned windows, given their numbers.

        Shapes: logits (B, K, h, w) of the old network; unlabelled and new (B, H, W) bool, the pixels of the sums.
        """
        q = at_least_float32(logits).permute(0, 2, 3, 1).softmax(3)
        shares, classes = q.topk(min(self.kept, q.shape[3]), dim=3)
        shares = (shares / shares.sum(3, keepdim=True) * LEVELS).round().to(torch.uint8)
        classes = classes.to(torch.uint8 if q.shape[3] <= 256 else torch.int16)
        self.labels.add(SoftBlock(tuple(windows), classes, shares))
        size = logits.shape[-2], logits.shape[-1]
        pixels = torch.stack([marked_pixels(mask, size) for mask in (unlabelled, new)])
        # In double precision the sums do not depend on how windows are distributed over batches and processes.
        self._found += (pixels.flatten(1).double() @ q.flatten(0, 2).double()).to(self._found)

    def gather(self) -> SoftLabels:
        """Return the soft labels of the windows of all processes, and keep none of them."""
        self.labels.gather()
        self._found = global_sum(self._found)
        labels, self.labels = self.labels, SoftLabels()
        return labels

    def background_share(self) -> float:
        """Return the share of background in the unlabelled pixels of the scan, summed over q."""
        unlabelled = self._found[0]
        return float(unlabelled[BACKGROUND] / unlabelled.sum()) if unlabelled.any() else 0.0

    def taken(self) -> Tensor:
        """Return r (K,), the share of each old class that the labels of new classes take away from it.

        r_c = Σ_{i new} q_ic / Σ_{i new or unlabelled} q_ic, and 0 for a class that was not found.
        """
        share: Tensor = self._found[1] / self._found.sum(0).clamp_min(torch.finfo(torch.float64).tiny)
        return share
