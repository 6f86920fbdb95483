"""How a batch travels: all its tensors in one buffer, which is one copy to the device.

Workers write their batches into memory that they share with the process that forked them. Memory that is used again has
its pages in place; new shared memory for every batch, torch's own way, costs more than all of the augmentation, and the
receiving process would be the bottleneck from some 1500 windows per second on.
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
"""Places of a worker in the ring. It works on a batch while one more waits and the one before that is being copied:
torch hands out a worker's batch when its second but last is asked for."""

_ALIGNED = 16  # bytes that a part begins at a multiple of, whatever its type

_rings: WeakValueDictionary[int, SharedRing] = WeakValueDictionary()  # of this process, and known to those it forks


class Slot(NamedTuple):
    """A place in a ring, as it is told to another process."""

    ring: int
    worker: int
    place: int
    size: int


class SharedRing:
    """Memory shared with processes that are forked off later: so many workers, each with `SLOTS` of so many bytes.

    A page that is never written takes no memory.
    """

    def __init__(self, workers: int, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = torch.frombuffer(mmap.mmap(-1, workers * SLOTS_PER_WORKER * self.size), dtype=torch.uint8)
        self.memory = whole.view(workers, SLOTS_PER_WORKER, self.size)
        self.used = 0
        _rings[id(self)] = self

    def next(self, size: int) -> Slot | None:
        """Return this worker's next place; None outside of workers, and for more than fits."""
        worker = get_worker_info()
        if worker is None or size > self.size:
            return None
        self.used += 1  # every worker has its own count
        return Slot(id(self), worker.id, self.used % SLOTS_PER_WORKER, size)


class TensorSpan(NamedTuple):
    """Where a tensor lies in a buffer."""

    start: int
    shape: tuple[int, ...]
    type: torch.dtype

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + torch.Size(self.shape).numel() * self.type.itemsize

    def of(self, buffer: Tensor) -> Tensor:
        """Return the tensor."""
        return buffer[self.start : self.end].view(self.type).view(self.shape)


@dataclass(frozen=True)
class PackedTensors:
    """Tensors, some perhaps None, in a buffer; the buffer may be a place in a ring, which is soon used again."""

    buffer: Tensor
    parts: tuple[TensorSpan | None, ...]
    slot: Slot | None = None

    @classmethod
    def pack(cls, entries: Sequence[Tensor | Sequence[Tensor] | None], ring: SharedRing | None) -> PackedTensors:
        """Copy tensors, and lists of tensors to be stacked, into a buffer."""
        parts: list[TensorSpan | None] = []
        filled = 0
        for entry in entries:
            if entry is None:
                parts.append(None)
                continue
            first = entry if isinstance(entry, Tensor) else entry[0]
            shape = tuple(first.shape) if isinstance(entry, Tensor) else (len(entry), *first.shape)
            parts.append(part := TensorSpan(filled, shape, first.dtype))
            filled = -(-part.end // _ALIGNED) * _ALIGNED
        slot = None if ring is None else ring.next(filled)
        buffer = torch.empty(filled, dtype=torch.uint8) if slot is None else _slot_memory(slot)
        for entry, place in zip(entries, parts, strict=True):
            if entry is not None and place is not None:
                whole = place.of(buffer)
                for at, tensor in ((whole, entry),) if isinstance(entry, Tensor) else zip(whole, entry, strict=True):
                    at.copy_(tensor)
        return cls(buffer, tuple(parts), slot)

    def tensors(self) -> list[Tensor | None]:
        """Return the tensors, in the order in which they were packed."""
        return [None if part is None else part.of(self.buffer) for part in self.parts]

    def to(self, device: torch.device) -> PackedTensors:
        """Move the buffer to a device."""
        return replace(self, buffer=self.buffer.to(device, non_blocking=True))

    def pin_memory(self) -> PackedTensors:
        """Copy the buffer to memory that a GPU can copy from by itself."""
        return PackedTensors(self.buffer.pin_memory(), self.parts)

    def kept(self) -> PackedTensors:
        """Return the parcel in memory of its own."""
        return self if self.slot is None else PackedTensors(self.buffer.clone(), self.parts)

    def __reduce__(self) -> tuple[object, ...]:
        """Tell another process where the buffer is, if it can see it, and otherwise what is in it."""
        if self.slot is None:
            return PackedTensors, (self.buffer, self.parts)
        return _unpickle, (self.slot, self.parts)


def _slot_memory(slot: Slot) -> Tensor:
    return _rings[slot.ring].memory[slot.worker, slot.place, : slot.size]


def _unpickle(slot: Slot, parts: tuple[TensorSpan | None, ...]) -> PackedTensors:
    return PackedTensors(_slot_memory(slot), parts, slot)
