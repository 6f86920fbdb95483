"""From samples to batches: the step's labels, joint augmentation, counted order."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faircl.data.counting_pool import available_cores
from faircl.data.saliency import SaliencyMaps
from faircl.data.sample import Sample, SegmentationData
from faircl.distributed import all_gather_objects
from faircl.errors import UserError
from faircl.labels import IGNORE, LabelTable, Mask, apply_table
from faircl.loading.batch import Batch as Batch
from faircl.loading.batch import Item as Item
from faircl.loading.batch import PackedBatch
from faircl.loading.compact_labels import COMPACT_IGNORE, as_tensor, compact, compact_lookup
from faircl.loading.packed_tensors import SharedRing
from faircl.loading.samplers import StepBatchSampler
from faircl.loading.transforms import CentreCrop, Crop, jitter_gains
from faircl.loading.windows import PackedWindows, Window
from faircl.seeding import generator

T = TypeVar("T")


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
        for masks in all_gather_objects(self._masks):
            self._masks |= masks


@dataclass(frozen=True)
class Augmentation:
    """How training windows are drawn: output size, zoom range, mirroring, colour jitter."""

    crop: int
    scale: tuple[float, float]
    flip: bool
    jitter: float


class LabelledImage(NamedTuple):
    """An image, or a part of it, with the step's labels: image (H, W, 3); labels, assigned, salient (H, W), compact."""

    image: NDArray[np.uint8]
    labels: Mask
    assigned: Mask | None
    salient: NDArray[np.uint8] | None


class AugmentationDraw(NamedTuple):
    """What is random about an item: its window and the gains of colour jitter."""

    crop: Crop
    gains: Tensor | None


@dataclass(frozen=True)
class StepDataset(Dataset[Item | Window]):
    """Training items of one step, addressed by (draw, image): the draw counts every item of the step ever made.

    ``tables`` has the label tables of images that have their own, by id: those of a replay memory. An image that no
    label was assigned to has IGNORE there. With ``cut_only`` items are windows that are yet to be resampled.
    """

    data: SegmentationData
    split: str
    images: tuple[str, ...]
    table: LabelTable
    assigned: AssignedLabels | None
    augmentation: Augmentation
    seed: int
    step: int
    saliency: SaliencyMaps | None = None
    tables: Mapping[str, LabelTable] = field(default_factory=dict)
    cut_only: bool = False

    def __getitem__(self, key: tuple[int, int]) -> Item | Window:
        """Read, label and augment one image."""
        draw, index = key
        id = self.images[index]
        sample = self.data.read(self.split, id)
        crop, gains = self.draw(draw, sample.mask.shape)
        place, crop = crop.within(sample.mask.shape)
        image, labels, assigned, salient = self.labelled(id, sample, place)
        if self.cut_only:
            cut = torch.from_numpy(image if image.flags.writeable else image.copy())
            marked = None if salient is None else torch.from_numpy(salient).bool()
            return Window(cut, as_tensor(labels), _tensor(assigned), marked, crop, draw, gains)
        return Item(
            crop.image(image),
            as_tensor(crop.mask(labels, COMPACT_IGNORE)),
            None if assigned is None else as_tensor(crop.mask(assigned, COMPACT_IGNORE)),
            draw,
            None if salient is None else torch.from_numpy(crop.mask(salient, fill=0)).bool(),
            gains,
        )

    @property
    def item_bytes(self) -> int:
        """Bytes of an item on its way, at most, unless it is a window that shrinks."""
        # Image, labels, assigned labels and saliency; and some numbers.
        return 8 * self.augmentation.crop**2 + 256

    def draw(self, draw: int, shape: tuple[int, ...]) -> AugmentationDraw:
        """Draw the window of an item, for an image of a shape (H, W)."""
        rng, a = generator(self.seed, "augment", self.step, draw), self.augmentation
        crop = Crop.draw(rng, (shape[0], shape[1]), a.crop, a.scale, a.flip)
        return AugmentationDraw(crop, jitter_gains(rng, a.jitter))

    def labelled(self, id: str, sample: Sample, place: tuple[slice, slice]) -> LabelledImage:
        """Give a part of an image the step's labels."""
        _, image, mask = sample
        labels = compact_lookup(self.tables.get(id, self.table), mask[place])
        assigned, salient = None, None
        if self.assigned is not None:
            given = self.assigned[id][place] if id in self.assigned else np.full(labels.shape, IGNORE, np.uint16)
            assigned = compact(given)
        if self.saliency is not None:
            salient = self.saliency.read(id, mask.shape)[place].astype(np.uint8)
        return LabelledImage(image[place], labels, assigned, salient)


def train_loader(
    dataset: StepDataset, batches: StepBatchSampler, workers: int, pin: bool = False
) -> Iterator[PackedBatch | PackedWindows]:
    """Yield this process's share of all batches of a step."""
    import_module("torchvision.io")  # JPEGs are then decoded by it; once here, and not once in every worker
    workers = min(workers, available_cores())  # what is computed does not depend on it
    fork = workers > 0 and sys.platform == "linux"  # where it is safe: workers then see all memory, uncopied
    ring = SharedRing(workers, batches.items * dataset.item_bytes) if fork else None
    collate = PackedWindows.collate if dataset.cut_only else PackedBatch.collate
    loader: Iterable[PackedBatch | PackedWindows] = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=partial(collate, ring=ring),
        pin_memory=pin,
        multiprocessing_context="fork" if fork else None,
    )
    for batch in _plain_user_errors(loader):
        yield batch.kept()  # pinned batches are already


def _plain_user_errors(items: Iterable[T]) -> Iterator[T]:
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
    table: LabelTable
    crop: CentreCrop | None = None
    tables: Mapping[str, LabelTable] = field(default_factory=dict)

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
    loader: DataLoader[WholeImage] = DataLoader(images, batch_size=None, num_workers=min(workers, available_cores()))
    group: list[WholeImage] = []
    for item in _plain_user_errors(loader):
        if group and (len(group) == batch or group[0].image.shape != item.image.shape):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _int32(labels: NDArray[np.uint16]) -> Tensor:
    return torch.from_numpy(labels.astype(np.int32))


def _tensor(labels: Mask | None) -> Tensor | None:
    return None if labels is None else as_tensor(labels)
