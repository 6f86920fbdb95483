"""The features that prototype replay shows to the classifier; no image is kept.

A class of n features of width D takes 2·n·D bytes: 100 KiB for 200 features of 256 channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faircl.precision import at_least_float32
from faircl.prototypes import PrototypeBank, in_turn


class FeatureMemory(nn.Module):
    """Features of every class, kept from its queue S_c when the step that labels it ends.

    State: ``features`` (K, n, D) float16; ``filled`` (K,) int64, how many a class has.
    """

    features: Tensor
    filled: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("features", torch.zeros((0, size, width), dtype=torch.float16))
        self.register_buffer("filled", torch.zeros(0, dtype=torch.int64))

    def keep(self, bank: PrototypeBank) -> None:
        """Store up to n features from the queue of every class that moved at the step; other classes do not change."""
        added = bank.classes - len(self.filled)
        self.features = F.pad(self.features, (0, 0, 0, 0, 0, added))
        self.filled = F.pad(self.filled, (0, added))
        filled = bank.filled[bank.moving]
        seen, filled = bank.moving[filled > 0], filled[filled > 0]
        # Places ⌊k · max(filled, n) / n⌋, k < n, spread over the queue: neighbours in it come from the same batch.
        every = torch.arange(self.size, device=filled.device) * filled[:, None].clamp_min(self.size) // self.size
        limit = torch.finfo(self.features.dtype).max
        # In float32: bfloat16 would round the limit up to a number that is infinite in float16.
        kept = at_least_float32(bank.queue[seen[:, None], every % filled[:, None]]).clamp(-limit, limit)
        self.features[seen] = kept.to(self.features.dtype)
        self.filled[seen] = filled.clamp_max(self.size)

    def draw(self, bank: PrototypeBank, turn: int, count: int) -> tuple[Tensor, Tensor]:
        """Return features of all classes (K, count, D) and which of them are valid (K, count) bool.

        Features of classes that move at this step come from their queues, those of all others from this memory. A class
        of m features gives those at turn·count, …, turn·count + count − 1, modulo m.
        """
        added = bank.classes - len(self.filled)
        filled = F.pad(self.filled, (0, added))
        rows = torch.arange(len(self.filled), device=filled.device)[:, None]
        kept = self.features[rows, in_turn(self.filled, turn, count)].to(bank.prototypes.dtype)
        features = F.pad(kept, (0, 0, 0, 0, 0, added))
        recent, moving = bank.recent(turn, count)
        features = features.index_copy(0, bank.moving, recent.to(features.dtype))
        filled = filled.index_copy(0, bank.moving, moving)
        return features, (filled > 0)[:, None].expand(-1, count)
