"""Soft labels of a step's fixed windows: class distributions at network stride, compact and in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from faircl.distributed import all_gather_objects, rank, world_size
from faircl.loading.batch import FixedWindow, SoftTargets

LEVELS = 255
"""Levels of a share: 8 bits."""


class SoftBlock(NamedTuple):
    """Soft labels of N windows that were scanned together, with the windows' numbers.

    Shapes: classes (N, h, w, n) uint8 or int16, in descending order of their shares; shares (N, h, w, n) uint8.
    """

    numbers: tuple[int, ...]
    classes: Tensor
    shares: Tensor


class SoftLabels:
    """The soft labels of all fixed windows of a step that training shows.

    They stay in host memory, n·h·w·2 bytes per window (3 above 256 classes): those of a few thousand images at stride 4
    are several GB, and an update needs a few MB of them. They are held in the blocks in which they were scanned: one
    tensor of all windows would need twice the memory while it is put together.
    """

    def __init__(self) -> None:
        self._blocks: list[SoftBlock] = []
        self._places: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def nbytes(self) -> int:
        """Bytes of all soft labels."""
        return sum(block.classes.nbytes + block.shares.nbytes for block in self._blocks)

    def add(self, block: SoftBlock) -> None:
        """Add scanned windows; tensors on a device are copied to the host."""
        self._places |= {number: (len(self._blocks), row) for row, number in enumerate(block.numbers)}
        classes, shares = (part.cpu().contiguous() for part in block[1:])
        self._blocks.append(SoftBlock(block.numbers, classes, shares))

    def gather(self) -> None:
        """Add the windows of all other processes."""
        if world_size() == 1:
            return
        own = list(self._blocks)
        described = [(block.numbers, block.classes.shape, block.classes.dtype) for block in own]
        for source, blocks in enumerate(all_gather_objects(described)):
            for at, (numbers, shape, dtype) in enumerate(blocks):
                if source == rank():
                    block = own[at]
                else:
                    block = SoftBlock(numbers, torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=torch.uint8))
                for part in (block.classes, block.shares):
                    dist.broadcast(part.view(torch.uint8), source)  # as bytes: gloo does not send int16
                if source != rank():
                    self.add(block)

    def of(self, windows: Sequence[FixedWindow], device: torch.device) -> SoftTargets:
        """Return the distributions of a batch's windows on a device, mirrored where the window is.

        They are collected in pinned memory and copied from there, so that the host does not wait for a GPU.
        """
        count, pin = len(windows), device.type == "cuda"
        staged = [part.new_empty((count, *part.shape[1:]), pin_memory=pin) for part in self._blocks[0][1:]]
        for k, (number, flip) in enumerate(windows):
            at, row = self._places[number]
            for whole, part in zip(staged, self._blocks[at][1:], strict=True):
                whole[k] = part[row].flip(1) if flip else part[row]
        classes, shares = (part.to(device, non_blocking=True) for part in staged)
        parts = shares.float()
        return SoftTargets(classes.long(), parts / parts.sum(3, keepdim=True))
