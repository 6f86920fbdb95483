"""Soft labels: the old network's class distribution at every cell of a step's fixed windows.

The old network sees every fixed window once, before the step. Of its softmax q at network stride the ``kept`` largest
classes of each cell are kept, in 8 bits each. This is distillation on exactly the windows that are trained on, with no
old network in memory during training. Labels that were made on whole images and then cut and zoomed would not do: they
are blurred by the resampling, and thin classes fade from step to step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faircl.distributed import all_gather_objects, global_sum
from faircl.labels import BACKGROUND
from faircl.losses.soft_cross_entropy import marked_pixels
from faircl.precision import at_least_float32

LEVELS = 255
"""Levels of a share: 8 bits."""


class SoftTargets(NamedTuple):
    """Distributions over old classes at the cells of a batch.

    Shapes: classes (B, h, w, n) int64, in descending order of their shares; shares (B, h, w, n), with a sum of one.
    """

    classes: Tensor
    shares: Tensor

    def likeliest(self) -> Tensor:
        """Return the class with the largest share, (B, h, w)."""
        return self.classes[..., 0]


class SoftLabels(nn.Module):
    """The distributions of all fixed windows of a step.

    State: ``classes`` (windows, h, w, kept), uint8 or int16, and ``shares`` (windows, h, w, kept) uint8.
    """

    classes: Tensor
    shares: Tensor

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.kept = kept
        for name in ("classes", "shares"):
            self.register_buffer(name, torch.zeros((0, 0, 0, 0), dtype=torch.uint8))
        self._forget_scan()

    def _forget_scan(self) -> None:
        self._scanned: list[tuple[Tensor, ...]] = []
        self._background = torch.zeros(2, dtype=torch.float64)

    def clear(self) -> None:
        """Forget all windows."""
        self.classes, self.shares = (self.shares.new_zeros((0, 0, 0, 0)) for _ in range(2))

    @torch.no_grad()
    def add(self, windows: Tensor, logits: Tensor, unlabelled: Tensor) -> None:
        """Add scanned windows.

        Shapes: windows (B,), their numbers; logits (B, K, h, w) of the old network; unlabelled (B, H, W) bool, pixels
        that count for ``background_share``.
        """
        q = at_least_float32(logits).permute(0, 2, 3, 1).softmax(3)
        shares, classes = q.topk(min(self.kept, q.shape[3]), dim=3)
        shares = (shares / shares.sum(3, keepdim=True) * LEVELS).round().to(torch.uint8)
        classes = classes.to(torch.uint8 if q.shape[3] <= 256 else torch.int16)
        missing = self.kept - classes.shape[3]
        kinds = windows, F.pad(classes, (0, missing)), F.pad(shares, (0, missing))
        self._scanned.append(tuple(one.cpu() for one in kinds))  # as objects between processes, not to another's GPU
        pixels = marked_pixels(unlabelled, (logits.shape[-2], logits.shape[-1]))
        # In double precision the sums do not depend on how windows are distributed over batches and processes.
        sums = [part.sum(dtype=torch.float64) for part in (q[..., BACKGROUND] * pixels, pixels)]
        self._background += torch.stack(sums).to(self._background)

    def gather(self) -> None:
        """Store what all processes have scanned, in the order of the windows' numbers.

        Without a scan, in a run that is resumed within the step, nothing is stored: the state is loaded afterwards.
        """
        device = self.shares.device
        parts = [part for own in all_gather_objects(self._scanned) for part in own]
        self._total = global_sum(self._background)
        self._forget_scan()
        if not parts:
            return
        numbers, classes, shares = (torch.cat(kind) for kind in zip(*parts, strict=True))
        order = numbers.argsort()
        self.classes, self.shares = classes[order].to(device), shares[order].to(device)

    def background_share(self) -> float:
        """Return the share of background in the unlabelled pixels of the last scan, summed over q."""
        background, unlabelled = self._total.tolist()
        return background / unlabelled if unlabelled > 0 else 0.0

    def of(self, windows: Tensor) -> SoftTargets:
        """Return the distributions of ``Batch.windows`` (B, 2), mirrored where the window is."""
        number, flip = windows[:, 0], windows[:, 1].bool()[:, None, None, None]
        classes, shares = (part[number] for part in (self.classes, self.shares))
        classes, shares = (torch.where(flip, part.flip(2), part) for part in (classes, shares))
        parts = shares.float()
        return SoftTargets(classes.long(), parts / parts.sum(3, keepdim=True))
