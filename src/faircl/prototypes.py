"""The prototype bank of Algorithm 1: queues S_c, momentum, frozen old classes, the unknown cluster p_0.

Channel 0 is p_0 where the data has a background class: unlabelled pixels that belong to no known class gather
there, and it moves at every step. All other prototypes move only at the step that learns their class.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faircl.data.sample import BACKGROUND, IGNORE


class PrototypeBank(nn.Module):
    """Prototypes p_c and the queues of recent features they are averaged from.

    Shapes: prototypes (K, D); ready (K,) bool, whether a prototype has a value; frozen (K,) bool; queue (K, L, D);
    filled (K,) and head (K,) int64, the entries used and the next place to write.
    """

    prototypes: Tensor
    ready: Tensor
    frozen: Tensor
    queue: Tensor
    filled: Tensor
    head: Tensor

    def __init__(self, width: int, length: int, period: int, momentum: float) -> None:
        super().__init__()
        self.width, self.length, self.period, self.momentum = width, length, period, momentum
        self._resize(0)

    @property
    def classes(self) -> int:
        """Number of prototypes, p_0 included."""
        return len(self.prototypes)

    def _resize(self, classes: int) -> None:
        """Grow every buffer to so many classes, keeping what is there."""
        shapes = {
            "prototypes": ((self.width,), torch.float32),
            "ready": ((), torch.bool),
            "frozen": ((), torch.bool),
            "queue": ((self.length, self.width), torch.float32),
            "filled": ((), torch.int64),
            "head": ((), torch.int64),
        }
        for name, (shape, dtype) in shapes.items():
            old = getattr(self, name, None)
            device = None if old is None else old.device
            grown = torch.zeros((classes, *shape), dtype=dtype, device=device)
            if old is not None and name != "queue":  # queues start empty at every step
                grown[: len(old)] = old
            self.register_buffer(name, grown)

    def begin_step(self, classes: int, background: bool) -> None:
        """Add the step's classes; freeze all earlier prototypes but p_0."""
        known = self.classes
        self._resize(classes)
        self.frozen[:known] = True
        self.filled.zero_()
        self.head.zero_()
        if background:
            self.frozen[BACKGROUND] = False

    @torch.no_grad()
    def push(self, features: Tensor, labels: Tensor, keys: Tensor, quota: int) -> None:
        """Append up to ``quota`` features of every class that still moves; the smallest keys win.

        Keys are hashes of (draw, pixel), so the choice does not depend on the order of a batch's images.
        Shapes: features (N, D), labels (N,) int64 with IGNORE, keys (N,) int64.
        """
        valid = labels != IGNORE
        moving = valid & ~self.frozen[labels.where(valid, 0)]
        features, labels, keys = features[moving], labels[moving], keys[moving]
        by_key = keys.argsort(stable=True)
        order = by_key[labels[by_key].argsort(stable=True)]
        labels = labels[order]
        counts = torch.bincount(labels, minlength=self.classes)
        rank = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts)[labels]
        taken = rank < min(quota, self.length)
        labels, rank, order = labels[taken], rank[taken], order[taken]
        place = (self.head[labels] + rank) % self.length
        self.queue[labels, place] = features[order].float()
        added = counts.clamp_max(min(quota, self.length))
        self.head = (self.head + added) % self.length
        self.filled = (self.filled + added).clamp_max(self.length)

    def update(self, iteration: int) -> None:
        """Algorithm 1 once ``iteration`` iterations of the step are done: nothing until M, then every M iterations.

        At M, or when its first features come later, a class takes their mean; from then on it moves by
        p_c ← η·p_c + (1 − η)·mean(S_c). So does p_0 at every step. Frozen prototypes do not move.
        """
        if iteration % self.period == 0:
            fresh = torch.ones_like(self.ready) if iteration == self.period else ~self.ready
            self._move(~self.frozen & (self.filled > 0), fresh)

    def finish_step(self) -> None:
        """Give classes that have features but met no update their mean; let the queues go."""
        self._move(~self.ready & (self.filled > 0), ~self.ready)
        self.filled.zero_()
        self.head.zero_()
        self.queue = self.queue[:, :0].clone()  # or every checkpoint would carry K·L·D numbers nobody reads

    @torch.no_grad()
    def _move(self, moving: Tensor, fresh: Tensor) -> None:
        used = torch.arange(self.length, device=self.queue.device) < self.filled[:, None]
        mean = (self.queue * used[..., None]).sum(1) / self.filled.clamp_min(1)[:, None]
        moved = self.momentum * self.prototypes + (1 - self.momentum) * mean
        target = torch.where(fresh[:, None], mean, moved)
        self.prototypes = torch.where(moving[:, None], target, self.prototypes)
        self.ready = self.ready | moving


def sample_keys(draws: Tensor, height: int, width: int) -> Tensor:
    """Hash (draw, pixel) to int64 keys; draws (B,), which count the items of a step, to keys (B·height·width,)."""
    pixel = torch.arange(height * width, device=draws.device)
    key = (draws[:, None] * 0x9E3779B1 + pixel) * 0x85EBCA77
    # Two rounds of multiply and xor-shift spread the counters over all bits; int64 wraps around by design.
    for factor in (0x2545F4914F6CDD1D, 0x369DEA0F31A53F85):
        key = (key ^ (key >> 29)) * factor
    return (key ^ (key >> 32)).flatten()
