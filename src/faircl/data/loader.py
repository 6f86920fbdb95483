"""From samples to batches: the step's labels, joint augmentation, counted order."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faircl.data.count_pool import cores
from faircl.data.saliency import SaliencyMaps
from faircl.data.sample import IGNORE, SegmentationData
from faircl.data.sampling import CountedBatches
from faircl.distributed import gather_objects
from faircl.errors import UserError
from faircl.scenario import apply_table
from faircl.scenario.scenario import Table
from faircl.seeding import generator
from faircl.transforms import CentreCrop, Crop, jitter

T = TypeVar("T")


class Item(NamedTuple):
    """One training window as a ``Batch`` has it, without the dimension of the batch."""

    image: Tensor
    labels: Tensor
    assigned: Tensor | None
    draw: int
    salient: Tensor | None = None


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
    def collate(cls, items: Sequence[Item]) -> Batch:
        """Stack items in their compact types: uint8 images, int32 labels."""
        return cls(
            torch.stack([item.image for item in items]),
            torch.stack([item.labels for item in items]),
            _stack([item.assigned for item in items]),
            torch.tensor([item.draw for item in items]),
            _stack([item.salient for item in items]),
        )

    def to(self, device: torch.device) -> Batch:
        """Move the batch to a device."""
        moved = (None if value is None else value.to(device, non_blocking=True) for value in self)
        return Batch(*moved)  # type: ignore[arg-type]  # what may be None keeps its place

    def prepared(self) -> Batch:
        """Return the batch as methods and networks want it: images in the run's float type, int64 labels."""
        image = self.image.to(torch.get_default_dtype()) / 255
        assigned = None if self.assigned is None else self.assigned.long()
        return self._replace(image=image, labels=self.labels.long(), assigned=assigned)


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

    def __contains__(self, id: object) -> bool:
        return id in self._masks

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
class StepDataset(Dataset[Item]):
    """Training items of one step, addressed by (draw, image): the draw counts every item of the step ever made.

    ``tables`` has the label tables of images that have their own, by id: those of a replay memory. An image that no
    label was assigned to has IGNORE there.
    """

    data: SegmentationData
    split: str
    images: tuple[str, ...]
    table: Table
    assigned: AssignedLabels | None
    augmentation: Augmentation
    seed: int
    step: int
    saliency: SaliencyMaps | None = None
    tables: Mapping[str, Table] = field(default_factory=dict)

    def __getitem__(self, key: tuple[int, int]) -> Item:
        """Read, label and augment one image."""
        draw, index = key
        id = self.images[index]
        sample = self.data.read(self.split, id)
        rng = generator(self.seed, "augment", self.step, draw)
        crop = Crop.draw(
            rng, sample.mask.shape, self.augmentation.crop, self.augmentation.scale, self.augmentation.flip
        )
        labels = crop.mask(apply_table(self.tables.get(id, self.table), sample.mask))
        assigned = None if self.assigned is None else _int32(self._assigned(self.assigned, id, crop, labels))
        image = jitter(crop.image(sample.image), rng, self.augmentation.jitter)
        salient = None
        if self.saliency is not None:
            salient = torch.from_numpy(crop.mask(self.saliency.read(id, sample.mask.shape), fill=0) > 0)
        return Item(image, _int32(labels), assigned, draw, salient)

    @staticmethod
    def _assigned(given: AssignedLabels, id: str, crop: Crop, labels: NDArray[np.uint16]) -> NDArray[np.uint16]:
        return crop.mask(given[id]) if id in given else np.full_like(labels, IGNORE)


def train_loader(dataset: StepDataset, batches: CountedBatches, workers: int, pin: bool = False) -> Iterator[Batch]:
    """Yield this process's share of all batches of a step."""
    loader: Iterable[Batch] = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=min(workers, cores()),  # what is computed does not depend on it
        collate_fn=Batch.collate,
        pin_memory=pin,
        # Where it is safe, a fork shares cached samples and assigned labels with the workers, uncopied.
        multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
    )
    yield from _in_words(loader)


def _in_words(items: Iterable[T]) -> Iterator[T]:
    """Pass items on; of a mistake in a worker process leave the sentence, without the traceback torch wraps it in."""
    try:
        yield from items
    except UserError as error:
        sentence = str(error).rpartition(f"{UserError.__module__}.{UserError.__name__}: ")[2]
        raise UserError(sentence.strip()) from None


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
    tables: Mapping[str, Table] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> WholeImage:
        id, image, mask = self.data.read(self.split, self.images[index])
        if self.crop is not None:
            image, mask = self.crop.image(image), self.crop.mask(mask)
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)
        return WholeImage(id, pixels, _int32(apply_table(self.tables.get(id, self.table), mask)))


def same_size_batches(images: WholeImages, batch: int, workers: int) -> Iterator[list[WholeImage]]:
    """Yield lists of up to ``batch`` consecutive images of one size, so that none needs padding."""
    loader: DataLoader[WholeImage] = DataLoader(images, batch_size=None, num_workers=min(workers, cores()))
    group: list[WholeImage] = []
    for item in _in_words(loader):
        if group and (len(group) == batch or group[0].image.shape != item.image.shape):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _stack(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Stack what all items have, or none of them."""
    present = [part for part in parts if part is not None]
    return torch.stack(present) if present else None


def _int32(labels: NDArray[np.uint16]) -> Tensor:
    return torch.from_numpy(labels.astype(np.int32))
