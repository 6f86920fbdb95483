"""In which order the images of a step are trained on; all of it counted, none of it remembered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from faircl.distributed import rank_slice
from faircl.seeding import generator


class Order(Protocol):
    """An endless order of images, epoch after epoch."""

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the images of an epoch, by index."""
        ...


@dataclass(frozen=True)
class ShuffledOrder:
    """Every image once per epoch, in an order that depends on the counters alone."""

    images: int
    seed: int
    counters: tuple[str | int, ...]

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return a permutation."""
        return generator(self.seed, *self.counters, number).permutation(self.images)


class RareClassOrder:
    r"""Images drawn by the classes they show, rare ones more often (rare-class sampling, DAFormer, CVPR 2022).

        P(c) = exp((1 − f_c) / T) / Σ_k exp((1 − f_k) / T),

    f_c the share of class c among the pixels that have a class; then any image that shows c. An epoch has as many
    draws as there are images. Only labels that the step shows are counted.

    Shapes: pixels (N, K), the pixels of every class in every image, background left out. Images without any of the
    classes are never drawn, so at least one must show one.
    """

    def __init__(self, pixels: NDArray[np.int64], temperature: float, seed: int, step: int) -> None:
        self.pixels, self.seed, self.step = pixels, seed, step
        total = pixels.sum(0)
        self.classes = np.flatnonzero(total)
        share = total[self.classes] / total.sum()
        score = (1 - share) / temperature
        weight = np.exp(score - score.max())
        self.chance = weight / weight.sum()

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Draw a class for every place of the epoch, and an image of it."""
        rng = generator(self.seed, "rare", self.step, number)
        drawn = rng.choice(self.classes, len(self.pixels), p=self.chance)
        images = np.empty(len(drawn), np.int64)
        for one in np.unique(drawn):
            places = np.flatnonzero(drawn == one)
            images[places] = rng.choice(np.flatnonzero(self.pixels[:, one]), len(places))
        return images


class Stream(NamedTuple):
    """Part of every batch: so many items from an order, its first image having a number among all of the step."""

    order: Order
    items: int
    first: int = 0


class StepBatchSampler(Sampler[list[tuple[int, int]]]):
    """All batches of a step as (draw, image) pairs; the draw counts every item.

    Epochs follow each other without a seam: a batch may hold the end of one and the start of the next, so none is
    ever short, even when the step has fewer images than a batch. Of every batch a process yields its own share.
    """

    def __init__(self, streams: Sequence[Stream], batches: int) -> None:
        self.streams, self.batches = tuple(streams), batches
        self.items = sum(stream.items for stream in streams)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        images = [_image_indices(stream) for stream in self.streams]
        draw = 0
        for _ in range(self.batches):
            parts = zip(self.streams, images, strict=True)
            batch = [next(image) for stream, image in parts for _ in range(stream.items)]
            yield list(rank_slice(list(enumerate(batch, draw))))
            draw += len(batch)


def _image_indices(stream: Stream) -> Iterator[int]:
    number = 0
    while True:
        for index in stream.order.epoch(number):
            yield stream.first + int(index)
        number += 1
