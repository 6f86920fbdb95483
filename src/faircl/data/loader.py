"""From samples to batches: the step's labels, joint augmentation, counted order."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from faircl.data.count_pool import cores
from faircl.data.sample import SegmentationData
from faircl.distributed import gather_objects, share_of
from faircl.scenario import apply_table
from faircl.scenario.scenario import Table
from faircl.seeding import generator
from faircl.transforms import CentreCrop, Crop, jitter


class Batch(NamedTuple):
    """What a method sees.

    Shapes: image (B, 3, H, W) float RGB in [0, 1]; labels (B, H, W) int64 channels with IGNORE; assigned the same or
    None where the step has no assigned labels; draws (B,) int64, the number of each item among all of the step.
    """

    image: Tensor
    labels: Tensor
    assigned: Tensor | None
    draws: Tensor

    @classmethod
    def collate(cls, items: Sequence[tuple[Tensor, Tensor, Tensor | None, int]]) -> Batch:
        """Stack items in their compact types: uint8 images, int32 labels."""
        images, labels, assigned, draws = zip(*items, strict=True)
        has = assigned[0] is not None
        return cls(
            torch.stack(images), torch.stack(labels), torch.stack(assigned) if has else None, torch.tensor(draws)
        )

    def to(self, device: torch.device) -> Batch:
        """Move the batch to a device."""
        moved = (None if value is None else value.to(device, non_blocking=True) for value in self)
        return Batch(*moved)  # type: ignore[arg-type]  # only `assigned` may be None, and it keeps its place

    def prepared(self) -> Batch:
        """Return the batch as methods and networks want it: images in the run's float type, int64 labels."""
        assigned = None if self.assigned is None else self.assigned.long()
        return Batch(self.image.to(torch.get_default_dtype()) / 255, self.labels.long(), assigned, self.draws)


class PackedArray(NamedTuple):
    """An integer array, compressed: masks shrink to a few percent."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes

    @classmethod
    def pack(cls, array: NDArray[Any]) -> PackedArray:
        """Compress an array."""
        return cls(array.shape, array.dtype.str, zlib.compress(np.ascontiguousarray(array).tobytes(), 1))

    def unpack(self) -> NDArray[Any]:
        """Return the array, read-only."""
        return np.frombuffer(zlib.decompress(self.data), self.dtype).reshape(self.shape)


class AssignedLabels:
    """Labels given to a step's images by the model of the step before, by image id, kept compressed in memory."""

    def __init__(self) -> None:
        self._masks: dict[str, PackedArray] = {}

    def __setitem__(self, id: str, mask: NDArray[np.uint16]) -> None:
        self._masks[id] = PackedArray.pack(mask.astype(np.uint16, copy=False))

    def __getitem__(self, id: str) -> NDArray[np.uint16]:
        return self._masks[id].unpack()

    def __len__(self) -> int:
        return len(self._masks)

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def gather(self) -> None:
        """Take in the labels that the other processes have made."""
        for masks in gather_objects(self._masks):
            self._masks |= masks


@dataclass(frozen=True)
class Augmentation:
    """How training windows are drawn: output size, zoom range, mirroring, colour jitter."""

    crop: int
    scale: tuple[float, float]
    flip: bool
    jitter: float


@dataclass(frozen=True)
class StepDataset(Dataset[tuple[Tensor, Tensor, Tensor | None, int]]):
    """Training items of one step, addressed by (draw, image): the draw counts every item of the step ever made."""

    data: SegmentationData
    split: str
    images: tuple[str, ...]
    table: Table
    assigned: AssignedLabels | None
    augmentation: Augmentation
    seed: int
    step: int

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """Read, label and augment one image."""
        draw, index = key
        id = self.images[index]
        sample = self.data.read(self.split, id)
        rng = generator(self.seed, "augment", self.step, draw)
        crop = Crop.draw(
            rng, sample.mask.shape, self.augmentation.crop, self.augmentation.scale, self.augmentation.flip
        )
        labels = crop.mask(apply_table(self.table, sample.mask))
        assigned = None if self.assigned is None else _int32(crop.mask(self.assigned[id]))
        image = jitter(crop.image(sample.image), rng, self.augmentation.jitter)
        return image, _int32(labels), assigned, draw


class CountedBatches(Sampler[list[tuple[int, int]]]):
    """All batches of a step, from shuffles that depend on (seed, step, epoch) alone.

    Epochs follow each other without a seam: a batch may hold the end of one and the start of the next, so none is
    ever short, even when the step has fewer images than a batch. Of every batch a process yields its own share.
    """

    def __init__(self, images: int, batch: int, batches: int, seed: int, step: int) -> None:
        self.images, self.batch, self.batches, self.seed, self.step = images, batch, batches, seed, step

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        stream = self._stream()
        for _ in range(self.batches):
            yield list(share_of([next(stream) for _ in range(self.batch)]))

    def _stream(self) -> Iterator[tuple[int, int]]:
        draw = epoch = 0
        while True:
            for index in generator(self.seed, "shuffle", self.step, epoch).permutation(self.images):
                yield draw, int(index)
                draw += 1
            epoch += 1


def train_loader(dataset: StepDataset, batch: int, batches: int, workers: int, pin: bool = False) -> Iterable[Batch]:
    """Return a loader over this process's share of all batches of a step."""
    sampler = CountedBatches(len(dataset.images), batch, batches, dataset.seed, dataset.step)
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=min(workers, cores()),  # what is computed does not depend on it
        collate_fn=Batch.collate,
        pin_memory=pin,
        # Where it is safe, a fork shares cached samples and assigned labels with the workers, uncopied.
        multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
    )


class WholeImage(NamedTuple):
    """One image at its own size: image (3, H, W) uint8, labels (H, W) int32."""

    id: str
    image: Tensor
    labels: Tensor


@dataclass(frozen=True)
class WholeImages(Dataset[WholeImage]):
    """Whole images, or their centres, with a step's labels, for evaluation and for scans before a step."""

    data: SegmentationData
    split: str
    images: tuple[str, ...]
    table: Table
    crop: CentreCrop | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> WholeImage:
        id, image, mask = self.data.read(self.split, self.images[index])
        if self.crop is not None:
            image, mask = self.crop.image(image), self.crop.mask(mask)
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)
        return WholeImage(id, pixels, _int32(apply_table(self.table, mask)))


def same_size_batches(images: WholeImages, batch: int, workers: int) -> Iterator[list[WholeImage]]:
    """Yield lists of up to ``batch`` consecutive images of one size, so that none needs padding."""
    loader: DataLoader[WholeImage] = DataLoader(images, batch_size=None, num_workers=min(workers, cores()))
    group: list[WholeImage] = []
    for item in loader:
        if group and (len(group) == batch or group[0].image.shape != item.image.shape):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _int32(labels: NDArray[np.uint16]) -> Tensor:
    return torch.from_numpy(labels.astype(np.int32))
