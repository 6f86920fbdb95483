"""The prototype bank of Algorithm 1: queues S_c, momentum, frozen old classes, the unknown cluster p_0.

Channel 0 is p_0 where the data has a background class: the cluster of unlabelled pixels that belong to no known class,
which moves at every step. All other prototypes move only at the step that learns their class. An unknown cluster apart
from the background has a bank of its own (``faircl.methods.faircl.unknown_cluster``).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faircl.distributed import all_gather, global_sum, rank, world_size
from faircl.labels import BACKGROUND

_KEY_BITS = 47
"""Bits of a key that are compared: together with the 16 bits of a label they fit into an int64."""
_NO_KEY = torch.iinfo(torch.int64).max


class PrototypeBank(nn.Module):
    """Prototypes p_c and the queues of recent features they are averaged from.

    Shapes: prototypes (K, D); ready (K,) bool, whether a prototype has a value; moving (n,) int64, the classes that are
    not frozen; queue (K, L, D); filled (K,) and head (K,) int64, the entries used and the next place to write.
    """

    saved_numbers = ("step_momentum", "continues", "empty")

    prototypes: Tensor
    ready: Tensor
    queue: Tensor
    filled: Tensor
    head: Tensor
    moving: Tensor

    def __init__(self, width: int, length: int, period: int, momentum: float) -> None:
        super().__init__()
        self.width, self.length, self.period, self.momentum = width, length, period, momentum
        self.step_momentum = momentum
        """Momentum of the current step."""
        self.continues = False
        """Whether the step's prototypes start from their values and not from the step's first features."""
        self.empty = True
        """Whether the step's queues are still empty."""
        self.register_buffer("moving", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("prototypes", torch.zeros(0, width))
        self.register_buffer("ready", torch.zeros(0, dtype=torch.bool))
        self.register_buffer("queue", torch.zeros(0, length, width))
        self.register_buffer("filled", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("head", torch.zeros(0, dtype=torch.int64))

    @property
    def classes(self) -> int:
        """Number of prototypes, p_0 included."""
        return len(self.prototypes)

    @property
    def frozen(self) -> Tensor:
        """Whether a prototype does not move at this step (K,) bool."""
        return torch.ones_like(self.ready).index_fill_(0, self.moving, False)

    def begin_step(self, classes: int, background: bool) -> None:
        """Add the step's classes; freeze all earlier prototypes but p_0."""
        known = self.classes
        self._begin(classes, self.momentum, continues=False)
        frozen = torch.arange(classes, device=self.ready.device) < known
        if background:
            frozen[BACKGROUND] = False
        self.moving = (~frozen).nonzero()[:, 0]

    def begin_domain_step(self, anchor: bool, momentum: float) -> None:
        """Keep the classes: all prototypes move, with another momentum; with ``anchor`` only those without a value."""
        self._begin(self.classes, momentum, continues=True)
        frozen = self.ready if anchor else torch.zeros_like(self.ready)
        self.moving = (~frozen).nonzero()[:, 0]

    def _begin(self, classes: int, momentum: float, continues: bool) -> None:
        """Add rows up to this number of classes; empty all queues."""
        added = classes - self.classes
        self.prototypes = torch.cat([self.prototypes, self.prototypes.new_zeros((added, self.width))])
        self.ready = torch.cat([self.ready, self.ready.new_zeros(added)])
        self.queue = self.prototypes.new_zeros((classes, self.length, self.width))
        self.filled, self.head = self.filled.new_zeros(classes), self.head.new_zeros(classes)
        self.step_momentum, self.continues, self.empty = momentum, continues, True

    @torch.no_grad()
    def push(self, features: Tensor, labels: Tensor, keys: Tensor, quota: int) -> None:
        """Append up to ``quota`` features of every moving class: those with the smallest keys of all processes.

        Keys are hashes of (draw, pixel), so the choice depends neither on the order of a batch's images nor on how
        they are distributed over processes. Nothing here waits for the device, and only features of moving classes
        are read.
        Shapes: features (B, D, h, w) or (N, D); labels (N,) int64 with IGNORE and keys (N,) int64, N = B·h·w.
        """
        if not len(self.moving) or (not len(labels) and world_size() == 1):
            return
        keys, pixels = self._candidates(labels, keys, min(quota, self.length))
        if self.empty:
            self.queue, self.empty = self.queue.to(features.dtype), False  # stored in the precision of the features
        rows = _rows(features, pixels.flatten()).to(self.queue.dtype).view(*pixels.shape, self.width)
        keys, rows = _smallest(keys, rows)
        entered = keys != _NO_KEY
        moving, added = self.moving, entered.sum(1)
        place = (self.head[moving][:, None] + torch.arange(keys.shape[1], device=keys.device)) % self.length
        kept = self.queue[moving[:, None], place]
        self.queue[moving[:, None], place] = torch.where(entered[..., None], rows, kept)
        self.head[moving] = (self.head[moving] + added) % self.length
        self.filled[moving] = (self.filled[moving] + added).clamp_max(self.length)

    def fill(self, features: Tensor, filled: Tensor) -> None:
        """Fill the queues of a new step: features (K, n, D), n ≤ L, of which each class uses ``filled`` (K,)."""
        used = features.shape[1]
        self.queue, self.empty = self.queue.to(features.dtype), False
        self.queue[:, :used] = features
        self.filled, self.head = filled.clone(), filled % self.length

    def _candidates(self, labels: Tensor, keys: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return the smallest keys of every moving class, in order, and their pixels: both (moving classes, most).

        Pixels are sorted by label · 2^47 + the upper 47 bits of the key, shifted to be ≥ 0: the pixels of a class are
        then contiguous. Places beyond the last pixel of a class have _NO_KEY.
        """
        upper = (keys >> (64 - _KEY_BITS)) + (1 << (_KEY_BITS - 1))
        composed, order = ((labels << _KEY_BITS) + upper).sort(stable=True)
        first, end = torch.searchsorted(composed, torch.stack([self.moving, self.moving + 1]) << _KEY_BITS)
        place = first[:, None] + torch.arange(most, device=labels.device)
        pixels = order[place.clamp_max(len(order) - 1)]
        return keys[pixels].where(place < end[:, None], _NO_KEY), pixels

    def update(self, iteration: int) -> None:
        """Update the prototypes if ``iteration``, from 1 at every step, is a multiple of M (Algorithm 1).

        A moving prototype is set to mean(S_c) at iteration M, or at the first multiple of M at which S_c has features.
        Afterwards p_c ← η·p_c + (1 − η)·mean(S_c). p_0 moves at every step. On a domain step a prototype that has a
        value is not set but moved, from M on.
        """
        if iteration % self.period == 0:
            first = iteration == self.period and not self.continues
            fresh = torch.ones_like(self.ready) if first else ~self.ready
            self._move(~self.frozen & (self.filled > 0), fresh)

    def recent(self, turn: int, count: int) -> tuple[Tensor, Tensor]:
        """Return features of the queues of the n moving classes (n, count, D), in turn, and how full these are (n,).

        Where a queue is empty the features are meaningless.
        """
        filled = self.filled[self.moving]
        return self.queue[self.moving[:, None], in_turn(filled, turn, count)], filled

    def finish_step(self) -> None:
        """Set prototypes that have features but no value yet to their mean; free the queues."""
        self._move(~self.ready & (self.filled > 0), ~self.ready)
        self.filled.zero_()
        self.head.zero_()
        self.queue = self.queue[:, :0].clone()  # not needed in the checkpoint

    @torch.no_grad()
    def _move(self, moving: Tensor, fresh: Tensor) -> None:
        """Set prototypes that are ``moving`` and ``fresh`` to mean(S_c), move other ``moving`` ones; both (K,) bool."""
        used = torch.arange(self.length, device=self.queue.device) < self.filled[:, None]
        mean = (self.queue * used[..., None]).sum(1, dtype=self.prototypes.dtype) / self.filled.clamp_min(1)[:, None]
        moved = self.step_momentum * self.prototypes + (1 - self.step_momentum) * mean
        target = torch.where(fresh[:, None], mean, moved)
        self.prototypes = torch.where(moving[:, None], target, self.prototypes)
        self.ready = self.ready | moving


def in_turn(filled: Tensor, turn: int, count: int) -> Tensor:
    """Return places (n, count) in queues of ``filled`` (n,) features: turn·count + (0, …, count − 1), modulo filled."""
    place = turn * count + torch.arange(count, device=filled.device)
    return place % filled.clamp_min(1)[:, None]


def _rows(features: Tensor, pixels: Tensor) -> Tensor:
    """Features (n, D) of pixels (n,) from a map (B, D, h, w) or from (N, D)."""
    if features.ndim == 2:
        return features[pixels]
    maps = features.flatten(2)
    return maps[pixels // maps.shape[2], :, pixels % maps.shape[2]]


def _smallest(keys: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest keys of all processes and their rows, sorted; keys (C, n) and rows (C, n, D), as given.

    Keys are gathered. Rows are exchanged by one sum, to which each process adds the chosen rows that it owns.
    """
    if world_size() == 1:  # sorted already
        return keys, rows
    classes, most = keys.shape
    everyones = all_gather(keys).transpose(0, 1).reshape(classes, -1)
    keys, source = everyones.sort(stable=True)
    keys, source = keys[:, :most], source[:, :most]
    own = source // most == rank()
    rows = rows.gather(1, (source % most)[..., None].expand_as(rows))
    return keys, global_sum(rows.where(own[..., None], 0.0))


def sample_keys(draws: Tensor, height: int, width: int) -> Tensor:
    """Hash (draw, pixel) to int64 keys; draws (B,), which count the items of a step, to keys (B·height·width,)."""
    pixel = torch.arange(height * width, device=draws.device)
    key = (draws[:, None] * 0x9E3779B1 + pixel) * 0x85EBCA77
    # Two rounds of multiply and xor-shift spread the counters over all bits; int64 wraps around by design.
    for factor in (0x2545F4914F6CDD1D, 0x369DEA0F31A53F85):
        key = (key ^ (key >> 29)) * factor
    return (key ^ (key >> 32)).flatten()
