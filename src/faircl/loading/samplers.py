"""The order in which a step's images are trained on; it follows from the seed and counters, without state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from faircl.distributed import rank_slice
from faircl.seeding import generator


class Order(Protocol):
    """An order of images for each epoch."""

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the image indices of an epoch."""
        ...


@dataclass(frozen=True)
class ShuffledOrder:
    """Every image once per epoch, in a random order that depends only on the seed and the counters."""

    images: int
    seed: int
    counters: tuple[str | int, ...]

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return a permutation."""
        return generator(self.seed, *self.counters, number).permutation(self.images)


class RareClassOrder:
    r"""Images of rare classes more often (rare-class sampling, DAFormer, CVPR 2022).

        P(c) = exp((1 − f_c) / T) / Σ_k exp((1 − f_k) / T),

    f_c the share of class c among the labelled foreground pixels of the step. A class c is drawn from P, then an image
    that contains c, uniformly. An epoch has as many draws as there are images.

    Shapes: pixels (N, K), pixel counts per image and class without background; at least one must be positive. Images
    without any of the classes are never drawn.
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
        """Draw a class for each item of the epoch, then an image that contains it."""
        rng = generator(self.seed, "rare", self.step, number)
        drawn = rng.choice(self.classes, len(self.pixels), p=self.chance)
        images = np.empty(len(drawn), np.int64)
        for one in np.unique(drawn):
            places = np.flatnonzero(drawn == one)
            images[places] = rng.choice(np.flatnonzero(self.pixels[:, one]), len(places))
        return images


class Stream(NamedTuple):
    """``items`` of every batch, taken from an order; ``first`` is added to its image indices."""

    order: Order
    items: int
    first: int = 0


class StepBatchSampler(Sampler[list[tuple[int, int]]]):
    """All batches of a step as lists of (draw, image index); the draw is the item's number within the step.

    A batch may hold the end of one epoch and the start of the next, so all batches have the same size, even when the
    step has fewer images than a batch. Each process yields its own part of every batch. ``first`` leaves out that many
    batches at the beginning: those that were trained on before the step was interrupted.
    """

    def __init__(self, streams: Sequence[Stream], batches: int, first: int = 0) -> None:
        self.streams, self.batches, self.first = tuple(streams), batches, first
        self.items = sum(stream.items for stream in streams)

    def __len__(self) -> int:
        return self.batches - self.first

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for batch in islice(self.whole_batches(), self.first, None):
            yield list(rank_slice(batch))

    def whole_batches(self) -> Iterator[list[tuple[int, int]]]:
        """Yield the batches of all processes together, from the first batch of the step on."""
        images = [_image_indices(stream) for stream in self.streams]
        for number in range(self.batches):
            parts = zip(self.streams, images, strict=True)
            batch = [next(image) for stream, image in parts for _ in range(stream.items)]
            yield list(enumerate(batch, number * self.items))


def _image_indices(stream: Stream) -> Iterator[int]:
    for epoch in count():
        for index in stream.order.epoch(epoch):
            yield stream.first + int(index)


class ListedBatches(Sampler[list[tuple[int, int]]]):
    """Batches of up to ``items`` (draw, image index) pairs in the order of a list; each process yields its own."""

    def __init__(self, pairs: Sequence[tuple[int, int]], items: int) -> None:
        self.pairs, self.items = rank_slice(pairs), items

    def __len__(self) -> int:
        return math.ceil(len(self.pairs) / self.items)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for first in range(0, len(self.pairs), self.items):
            yield list(self.pairs[first : first + self.items])


BatchOrder = StepBatchSampler | ListedBatches
