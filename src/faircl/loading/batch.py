"""Batches: packed as workers send them, and prepared as methods use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from faircl.loading.compact_labels import expand, to_common_dtype
from faircl.loading.packed_tensors import PackedTensors, SharedRing
from faircl.loading.transforms import jitter


class FixedWindow(NamedTuple):
    """Which of a step's fixed windows an item shows, and whether it is mirrored."""

    number: int
    flip: bool


class SoftTargets(NamedTuple):
    """Distributions over old classes at the cells of a batch.

    Shapes: classes (B, h, w, n) int64, in descending order of their shares; shares (B, h, w, n), with a sum of one.
    """

    classes: Tensor
    shares: Tensor

    def likeliest(self) -> Tensor:
        """Return the class with the largest share, (B, h, w)."""
        return self.classes[..., 0]


class Batch(NamedTuple):
    """One training batch, the input of a method.

    Shapes: image (B, 3, H, W) float RGB in [0, 1]; labels (B, H, W) int64 channels with IGNORE; assigned the same or
    None where the step has no assigned labels; draws (B,) int64, the number of each item among all of the step;
    auxiliary (B, H, W) bool, pixels that auxiliary maps mark, or None where the data has none. ``windows`` are the B
    fixed windows, known to the host, or None where a step cuts a new window at every visit; ``soft`` their soft labels,
    or None where the step has none.
    """

    image: Tensor
    labels: Tensor
    assigned: Tensor | None
    draws: Tensor
    auxiliary: Tensor | None = None
    windows: tuple[FixedWindow, ...] | None = None
    soft: SoftTargets | None = None

    @classmethod
    def prepare(
        cls,
        image: Tensor,
        labels: Tensor,
        assigned: Tensor | None,
        draws: Tensor,
        auxiliary: Tensor | None,
        gains: Tensor | None,
        windows: tuple[FixedWindow, ...] | None = None,
    ) -> Batch:
        """Convert uint8 images and compact labels; apply colour jitter with gains (B, 5)."""
        coloured = image if gains is None else jitter(image, gains)
        number = torch.get_default_dtype()
        return cls(
            coloured.to(number, memory_format=torch.contiguous_format) / 255,
            expand(labels),
            None if assigned is None else expand(assigned),
            draws,
            auxiliary,
            windows,
        )

    def to(self, device: torch.device) -> Batch:
        """Move the batch to a device."""
        moved = (one.to(device, non_blocking=True) if isinstance(one, Tensor) else one for one in self)
        soft = None if self.soft is None else SoftTargets(*(one.to(device, non_blocking=True) for one in self.soft))
        return Batch(*moved)._replace(soft=soft)  # type: ignore[arg-type]  # every field keeps its type

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors of the batch."""
        yield from (one for one in (*self, *(self.soft or ())) if isinstance(one, Tensor))


class LoaderBatch(Protocol):
    """A batch as a loader yields it; it is moved to the device and converted there."""

    def to(self, device: torch.device) -> Self:
        """Move it to a device."""
        ...

    def to_batch(self) -> Batch:
        """Convert it to the batch that methods use."""
        ...


class Item(NamedTuple):
    """One training window, resampled.

    Shapes: image (3, S, S) uint8, its channels last in memory; labels, assigned (S, S) compact; auxiliary (S, S) bool;
    gains (5,), of colour jitter.
    """

    image: Tensor
    labels: Tensor
    assigned: Tensor | None
    draw: int
    auxiliary: Tensor | None = None
    gains: Tensor | None = None
    window: FixedWindow | None = None


def fixed_windows(windows: Iterable[FixedWindow | None]) -> tuple[FixedWindow, ...] | None:
    """Return the fixed windows of a batch; None where there are none."""
    return tuple(window for window in windows if window is not None) or None  # all items have one, or none


@dataclass(frozen=True)
class PackedBatch:
    """The items of a batch in one buffer; their fixed windows stay on the host."""

    packed: PackedTensors
    windows: tuple[FixedWindow, ...] | None = None

    @classmethod
    def collate(cls, items: Sequence[Item], ring: SharedRing | None = None) -> PackedBatch:
        """Pack items."""
        assigned, auxiliary, gains = (
            [part for part in parts if part is not None] or None  # all items have it, or none
            for parts in (
                [one.assigned for one in items],
                [one.auxiliary for one in items],
                [one.gains for one in items],
            )
        )
        return cls(
            PackedTensors.pack(
                [
                    [item.image.permute(1, 2, 0) for item in items],  # channels last, the order in memory
                    to_common_dtype([item.labels for item in items]),
                    to_common_dtype(assigned) if assigned else None,
                    torch.tensor([item.draw for item in items]),
                    auxiliary,
                    gains,
                ],
                ring,
            ),
            fixed_windows(item.window for item in items),
        )

    def copy_from_ring(self) -> PackedBatch:
        """Return the batch in memory of its own."""
        return replace(self, packed=self.packed.copy_from_ring())

    def pin_memory(self) -> PackedBatch:
        """Copy the batch to page-locked memory."""
        return replace(self, packed=self.packed.pin_memory())

    def to(self, device: torch.device) -> PackedBatch:
        """Move the batch to a device."""
        return replace(self, packed=self.packed.to(device))

    def to_batch(self) -> Batch:
        """Convert images to the default float type and labels to int64."""
        image, labels, assigned, draws, auxiliary, gains = self.packed.tensors()
        assert image is not None
        assert labels is not None
        assert draws is not None
        # Tensors that are not converted are copied: a view would keep the whole buffer in memory.
        marked = None if auxiliary is None else auxiliary.clone()
        return Batch.prepare(image.permute(0, 3, 1, 2), labels, assigned, draws.clone(), marked, gains, self.windows)
