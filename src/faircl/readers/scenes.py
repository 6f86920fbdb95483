"""Procedural street scenes: a long-tailed data set that needs no download.

A camera looks down a street. Sky and open ground are background; houses and fences line the street, and trees, cars
and people stand in it. The rare classes (van, cyclist, kiosk, pedestrian) have the colours of the frequent ones and
differ in shape, texture and position. `faircl.readers.street` draws the scenes; this file is the reader.

A scene depends only on (seed, split, index) and is computed with operations that IEEE 754 rounds the same way
everywhere (no sine, power or matrix product), so that it has the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from faircl.data.sample import Classes, Image, Sample
from faircl.errors import UserError, unknown_name
from faircl.labels import Mask
from faircl.readers.street.canvas import Canvas, project
from faircl.readers.street.layout import NAMES, lay_out
from faircl.readers.street.textures import shade

CLASSES = Classes(NAMES, background=True)
"""Background and ten classes; task 6-4 learns pavement, fence, kiosk and cyclist in its second step."""

SMALLEST = 32  # pixels; below it the rare objects are a pixel or two wide
CACHE_BYTES = 128 << 20

_SPLITS = {"train": 0, "test": 1}
_LAYOUT, _TEXTURE = 0, 1  # separate random streams, so that a mask can be made without its image


class SceneData:
    """Street scenes, generated when read; implements `SegmentationData`.

    Shapes: image (size, size, 3) uint8; mask (size, size) uint8 with ids 0 … 10, no pixel ignored.
    """

    classes = CLASSES

    def __init__(self, images: int = 200, test_images: int = 60, size: int = 96, seed: int = 0) -> None:
        """Set up the data set; scenes are drawn when read.

        Args:
            images: number of training images.
            test_images: number of test images.
            size: height and width in pixels.
            seed: another seed gives other scenes with the same statistics.
        """
        for name, value, least in (
            ("images", images, 1),
            ("test_images", test_images, 1),
            ("size", size, SMALLEST),
            ("seed", seed, 0),
        ):
            if value < least:
                raise UserError(f"Street scenes need {name} of at least {least}, got {value}.")
        self.size = size
        self.seed = seed
        self._counts = {"train": images, "test": test_images}
        # Filled once and never evicted: epochs visit all images in turn, so a least-recently-used cache would evict
        # each image just before its next use.
        self._cache: dict[tuple[str, int], tuple[Image, Mask]] = {}

    def ids(self, split: str) -> Sequence[str]:
        """Return the image ids of "train" or "test", sorted."""
        return [f"{split}-{index:05d}" for index in range(self._count(split))]

    def read(self, split: str, id: str) -> Sample:
        """Return image and mask of one id, as copies."""
        index = self._index(split, id)
        pair = self._cache.get((split, index))
        if pair is None:
            canvas = self._canvas(split, index)
            pair = shade(canvas, self._generator(split, index, _TEXTURE)), canvas.label
            if len(self._cache) < CACHE_BYTES // (4 * self.size * self.size):
                self._cache[split, index] = pair
        image, mask = pair
        return Sample(id, image.copy(), mask.copy())

    def read_mask(self, split: str, id: str) -> Mask:
        """Return the mask alone; the scene is projected but not coloured."""
        index = self._index(split, id)
        if (split, index) in self._cache:
            return self._cache[split, index][1].copy()
        return self._canvas(split, index).label

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the cache: drawing images again is faster than sending them."""
        return {**self.__dict__, "_cache": {}}

    def _count(self, split: str) -> int:
        if split not in self._counts:
            raise unknown_name("split", split, self._counts)
        return self._counts[split]

    def _index(self, split: str, id: str) -> int:
        count = self._count(split)
        digits = id.removeprefix(f"{split}-")
        index = int(digits) if digits.isdecimal() else count
        if index >= count or id != f"{split}-{index:05d}":
            raise UserError(
                f"No image '{id}' in split '{split}': ids run from {split}-00000 to {split}-{count - 1:05d}."
            )
        return index

    def _canvas(self, split: str, index: int) -> Canvas:
        return project(lay_out(self._generator(split, index, _LAYOUT), index, self.size))

    def _generator(self, split: str, index: int, stream: int) -> np.random.Generator:
        entropy = np.random.SeedSequence([self.seed, _SPLITS[split], index, stream])
        return np.random.Generator(np.random.Philox(entropy))
