"""All tensors of a batch in one buffer, so that one copy brings them to the device.

Workers write batches into a ring of memory that they share with the process that forked them. Its pages are allocated
once and used again. torch allocates new shared memory for every batch, which costs more than the augmentation and
limits the receiving process to about 1500 windows per second.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

SLOTS_PER_WORKER = 3
"""One that the worker fills, one that waits, and one that is being copied: torch prefetches two batches per worker."""

_ALIGNMENT = 16  # bytes; every tensor starts at a multiple of it, whatever its type

_rings: WeakValueDictionary[int, SharedRing] = WeakValueDictionary()  # by id(); forked workers inherit it


class Slot(NamedTuple):
    """Address of a slot in a ring, valid in this process and in those forked from it."""

    ring: int
    worker: int
    number: int
    size: int


class SharedRing:
    """Ring buffer shared with worker processes that are forked later: `SLOTS_PER_WORKER` slots of ``size`` bytes each.

    Pages that are never written take no memory.
    """

    def __init__(self, workers: int, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = torch.frombuffer(mmap.mmap(-1, workers * SLOTS_PER_WORKER * self.size), dtype=torch.uint8)
        self.memory = whole.view(workers, SLOTS_PER_WORKER, self.size)
        self.used = 0
        _rings[id(self)] = self

    def next_slot(self, size: int) -> Slot | None:
        """Return this worker's next slot; None outside of a worker, or if ``size`` bytes do not fit."""
        worker = get_worker_info()
        if worker is None or size > self.size:
            return None
        self.used += 1  # counted by each worker for itself
        return Slot(id(self), worker.id, self.used % SLOTS_PER_WORKER, size)


class TensorSpan(NamedTuple):
    """Position, shape and type of a tensor within a buffer."""

    start: int
    shape: tuple[int, ...]
    type: torch.dtype

    @property
    def end(self) -> int:
        """Index of the byte after the last one."""
        return self.start + torch.Size(self.shape).numel() * self.type.itemsize

    def view(self, buffer: Tensor) -> Tensor:
        """Return the tensor as a view of the buffer."""
        return buffer[self.start : self.end].view(self.type).view(self.shape)


@dataclass(frozen=True)
class PackedTensors:
    """Tensors (or None) in one buffer. A buffer in a ring (``slot``) is overwritten after a few batches."""

    buffer: Tensor
    spans: tuple[TensorSpan | None, ...]
    slot: Slot | None = None

    @classmethod
    def pack(cls, entries: Sequence[Tensor | Sequence[Tensor] | None], ring: SharedRing | None) -> PackedTensors:
        """Copy tensors, and lists of tensors to be stacked, into a buffer."""
        spans: list[TensorSpan | None] = []
        filled = 0
        for entry in entries:
            if entry is None:
                spans.append(None)
                continue
            first = entry if isinstance(entry, Tensor) else entry[0]
            shape = tuple(first.shape) if isinstance(entry, Tensor) else (len(entry), *first.shape)
            spans.append(span := TensorSpan(filled, shape, first.dtype))
            filled = -(-span.end // _ALIGNMENT) * _ALIGNMENT
        slot = None if ring is None else ring.next_slot(filled)
        buffer = torch.empty(filled, dtype=torch.uint8) if slot is None else _slot_memory(slot)
        for entry, place in zip(entries, spans, strict=True):
            if entry is not None and place is not None:
                whole = place.view(buffer)
                for at, tensor in ((whole, entry),) if isinstance(entry, Tensor) else zip(whole, entry, strict=True):
                    at.copy_(tensor)
        return cls(buffer, tuple(spans), slot)

    def tensors(self) -> list[Tensor | None]:
        """Return the tensors in the order in which they were packed."""
        return [None if span is None else span.view(self.buffer) for span in self.spans]

    def to(self, device: torch.device) -> PackedTensors:
        """Move the buffer to a device."""
        return replace(self, buffer=self.buffer.to(device, non_blocking=True))

    def pin_memory(self) -> PackedTensors:
        """Copy the buffer to page-locked memory."""
        return PackedTensors(self.buffer.pin_memory(), self.spans)

    def copy_from_ring(self) -> PackedTensors:
        """Return the tensors in memory of their own: a copy if they are in a ring."""
        return self if self.slot is None else PackedTensors(self.buffer.clone(), self.spans)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle a buffer in a ring by its address, any other by its content."""
        if self.slot is None:
            return PackedTensors, (self.buffer, self.spans)
        return _unpickle, (self.slot, self.spans)


def _slot_memory(slot: Slot) -> Tensor:
    return _rings[slot.ring].memory[slot.worker, slot.number, : slot.size]


def _unpickle(slot: Slot, spans: tuple[TensorSpan | None, ...]) -> PackedTensors:
    return PackedTensors(_slot_memory(slot), spans, slot)
