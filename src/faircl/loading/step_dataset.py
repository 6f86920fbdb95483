"""Training items of one step: read an image, apply the step's label table, draw the augmentation, cut the window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from faircl.data.auxiliary_maps import AuxiliaryMaps
from faircl.data.sample import Sample, SegmentationData
from faircl.labels import IGNORE, LabelTable, Mask
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import FixedWindow, Item
from faircl.loading.compact_labels import COMPACT_IGNORE, as_tensor, compact, compact_lookup
from faircl.loading.transforms import Crop, jitter_gains
from faircl.loading.windows import Window
from faircl.seeding import generator


@dataclass(frozen=True)
class Augmentation:
    """Settings of augmentation: output size, zoom range, mirroring, strength of colour jitter."""

    crop: int
    scale: tuple[float, float]
    flip: bool
    jitter: float


class LabelledImage(NamedTuple):
    """An image, or a region of it, with the step's labels.

    Shapes: image (H, W, 3) uint8; labels and assigned (H, W) compact; auxiliary (H, W) uint8.
    """

    image: NDArray[np.uint8]
    labels: Mask
    assigned: Mask | None
    auxiliary: NDArray[np.uint8] | None


class AugmentationDraw(NamedTuple):
    """Random parameters of one item: its crop, the gains (5,) of colour jitter, and its window if that is fixed."""

    crop: Crop
    gains: Tensor | None
    window: FixedWindow | None


@dataclass(frozen=True)
class StepDataset(Dataset[Item | Window]):
    """Training items of one step, indexed by (draw, image); the draw is the item's number within the step.

    ``table`` is the step's label table; ``tables`` overrides it by image id, for images of a replay memory. Images
    without assigned labels get IGNORE as their assigned label. With ``resample_on_device`` an item is a `Window` that
    is not yet resampled, and otherwise a finished `Item`.

    With ``windows`` = R > 0 an image has R fixed windows, numbered image·R … image·R + R − 1, which take turns from
    epoch to epoch; only mirroring and colour jitter are drawn anew. What is known of a window before the step, such as
    the old network's predictions, then holds for every visit.
    """

    data: SegmentationData
    split: str
    images: tuple[str, ...]
    table: LabelTable
    assigned: AssignedLabels | None
    augmentation: Augmentation
    seed: int
    step: int
    auxiliary: AuxiliaryMaps | None = None
    tables: Mapping[str, LabelTable] = field(default_factory=dict)
    resample_on_device: bool = False
    windows: int = 0
    streams: tuple[tuple[int, int], ...] = ()
    """Items of every batch and images of each stream that fills it; unset: all images are one stream."""
    earlier_steps: int = 0
    """Steps that the model had learned before the first one here; random numbers count them."""

    @property
    def seed_step(self) -> int:
        """The number of the step in random seeds."""
        return self.earlier_steps + self.step

    def __getitem__(self, key: tuple[int, int]) -> Item | Window:
        """Read, label and augment one image."""
        draw, index = key
        id = self.images[index]
        sample = self.data.read(self.split, id)
        crop, gains, window = self.draw_augmentation(draw, index, sample.mask.shape)
        region, crop = crop.clip_to(sample.mask.shape)
        image, labels, assigned, auxiliary = self.apply_labels(id, sample, region)
        if self.resample_on_device:
            cut = torch.from_numpy(image if image.flags.writeable else image.copy())
            marked = None if auxiliary is None else torch.from_numpy(auxiliary).bool()
            given = None if assigned is None else as_tensor(assigned)
            return Window(cut, as_tensor(labels), given, marked, crop, draw, gains, window)
        return Item(
            crop.image(image),
            as_tensor(crop.mask(labels, COMPACT_IGNORE)),
            None if assigned is None else as_tensor(crop.mask(assigned, COMPACT_IGNORE)),
            draw,
            None if auxiliary is None else torch.from_numpy(crop.mask(auxiliary, fill=0)).bool(),
            gains,
            window,
        )

    @property
    def item_bytes(self) -> int:
        """Upper bound of an item's size in bytes; a `Window` that will be shrunk may be larger."""
        # Image, labels, assigned labels and auxiliary map take at most 8 bytes per pixel, the other fields 256.
        return 8 * self.augmentation.crop**2 + 256

    def draw_augmentation(self, draw: int, index: int, shape: tuple[int, ...]) -> AugmentationDraw:
        """Draw crop and colour jitter of an item, for an image of a shape (H, W)."""
        rng, a = generator(self.seed, "augment", self.seed_step, draw), self.augmentation
        size = (shape[0], shape[1])
        if self.windows == 0:
            crop = Crop.draw(rng, size, a.crop, a.scale, a.flip)
            return AugmentationDraw(crop, jitter_gains(rng, a.jitter), None)
        number = self.window_number(draw, index)
        crop = Crop.draw(generator(self.seed, "window", self.seed_step, number), size, a.crop, a.scale, flip=False)
        crop = replace(crop, flip=bool(a.flip and rng.random() < 0.5))
        return AugmentationDraw(crop, jitter_gains(rng, a.jitter), FixedWindow(number, crop.flip))

    def window_number(self, draw: int, index: int) -> int:
        """Return the number of the fixed window that a draw shows of an image."""
        return index * self.windows + self._epoch(draw, index) % self.windows

    def _epoch(self, draw: int, index: int) -> int:
        """Return how often the stream of an image has shown all its images before a draw."""
        streams = self.streams or ((1, len(self.images)),)
        batch, place = divmod(draw, sum(items for items, _ in streams))
        for items, images in streams:
            if index < images:
                return (batch * items + place) // images
            index, place = index - images, place - items
        raise ValueError(f"image {index} is in no stream of {streams}")

    def first_visits(self, batches: Iterable[Sequence[tuple[int, int]]]) -> list[tuple[int, int]]:
        """Return the first (draw, image) pair of every fixed window that batches show.

        The first windows of all images come first, then the second ones, and so on.
        """
        first: dict[int, tuple[int, int]] = {}
        for draw, index in chain.from_iterable(batches):
            first.setdefault(self.window_number(draw, index), (draw, index))
            if len(first) == self.windows * len(self.images):
                break  # later epochs show the same windows
        return [first[number] for number in sorted(first, key=lambda number: (number % self.windows, number))]

    def apply_labels(self, id: str, sample: Sample, region: tuple[slice, slice]) -> LabelledImage:
        """Return a region of an image with the step's labels."""
        _, image, mask = sample
        labels = compact_lookup(self.tables.get(id, self.table), mask[region])
        assigned, auxiliary = None, None
        if self.assigned is not None:
            given = self.assigned[id][region] if id in self.assigned else np.full(labels.shape, IGNORE, np.uint16)
            assigned = compact(given)
        if self.auxiliary is not None:
            auxiliary = self.auxiliary.read(id, mask.shape)[region].astype(np.uint8)
        return LabelledImage(image[region], labels, assigned, auxiliary)
