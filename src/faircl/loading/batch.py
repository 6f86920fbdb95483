"""Batches: as workers send them, and as methods see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from faircl.loading.compact_labels import expand, to_common_dtype
from faircl.loading.packed_tensors import PackedTensors, SharedRing
from faircl.loading.transforms import jitter


class Batch(NamedTuple):
    """What a method sees.

    Shapes: image (B, 3, H, W) float RGB in [0, 1]; labels (B, H, W) int64 channels with IGNORE; assigned the same or
    None where the step has no assigned labels; draws (B,) int64, the number of each item among all of the step;
    salient (B, H, W) bool, pixels that saliency maps mark, or None where the data has none.
    """

    image: Tensor
    labels: Tensor
    assigned: Tensor | None
    draws: Tensor
    salient: Tensor | None = None

    @classmethod
    def prepare(
        cls,
        image: Tensor,
        labels: Tensor,
        assigned: Tensor | None,
        draws: Tensor,
        salient: Tensor | None,
        gains: Tensor | None,
    ) -> Batch:
        """Make a batch of uint8 images, compact labels and the gains (B, 5) of colour jitter."""
        coloured = image if gains is None else jitter(image, gains)
        number = torch.get_default_dtype()
        return cls(
            coloured.to(number, memory_format=torch.contiguous_format) / 255,
            expand(labels),
            None if assigned is None else expand(assigned),
            draws,
            salient,
        )

    def to(self, device: torch.device) -> Batch:
        """Move the batch to a device."""
        moved = (None if value is None else value.to(device, non_blocking=True) for value in self)
        return Batch(*moved)  # type: ignore[arg-type]  # what may be None keeps its place


class LoaderBatch(Protocol):
    """What comes out of a loader: it is moved to the device and prepared there."""

    def to(self, device: torch.device) -> Self:
        """Move it to a device."""
        ...

    def prepared(self) -> Batch:
        """Return the batch that methods see."""
        ...


class Item(NamedTuple):
    """One training window, resampled.

    Shapes: image (3, S, S) uint8, its channels last in memory; labels, assigned (S, S) compact; salient (S, S) bool;
    gains (5,), of colour jitter.
    """

    image: Tensor
    labels: Tensor
    assigned: Tensor | None
    draw: int
    salient: Tensor | None = None
    gains: Tensor | None = None


@dataclass(frozen=True)
class PackedBatch:
    """Items of a batch on their way to the device."""

    parcel: PackedTensors

    @classmethod
    def collate(cls, items: Sequence[Item], ring: SharedRing | None = None) -> PackedBatch:
        """Pack items."""
        assigned, salient, gains = (
            [part for part in parts if part is not None] or None  # all items have it, or none
            for parts in ([one.assigned for one in items], [one.salient for one in items], [one.gains for one in items])
        )
        return cls(
            PackedTensors.pack(
                [
                    [item.image.permute(1, 2, 0) for item in items],  # as it lies in memory
                    to_common_dtype([item.labels for item in items]),
                    to_common_dtype(assigned) if assigned else None,
                    torch.tensor([item.draw for item in items]),
                    salient,
                    gains,
                ],
                ring,
            )
        )

    def kept(self) -> PackedBatch:
        """Return the batch in memory of its own."""
        return replace(self, parcel=self.parcel.kept())

    def pin_memory(self) -> PackedBatch:
        """Move the batch to memory that a GPU can copy from by itself."""
        return replace(self, parcel=self.parcel.pin_memory())

    def to(self, device: torch.device) -> PackedBatch:
        """Move the batch to a device."""
        return replace(self, parcel=self.parcel.to(device))

    def prepared(self) -> Batch:
        """Return the batch as methods and networks want it: images in the run's float type, int64 labels."""
        image, labels, assigned, draws, salient, gains = self.parcel.tensors()
        assert image is not None
        assert labels is not None
        assert draws is not None
        # What is not converted is copied: it would keep the whole buffer from being freed.
        own = None if salient is None else salient.clone()
        return Batch.prepare(image.permute(0, 3, 1, 2), labels, assigned, draws.clone(), own, gains)
