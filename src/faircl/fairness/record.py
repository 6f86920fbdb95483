"""The record of one evaluation: per image a sparse confusion matrix and calibration bins.

Every measure, interval and plot of an audit follows from it, so that no network runs twice. It holds counts alone and
needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]
BINS = 15
"""Calibration bins of equal width over the confidence [0, 1]."""


class RecordedClass(NamedTuple):
    """A class: raw id, name, the step that learned it, whether it is the background, whether it is scored.

    A background without a truth pixel of its own is not scored.
    """

    id: int
    name: str
    learned_at: int = 0
    background: bool = False
    scored: bool = True


class Confusions(NamedTuple):
    """Pixels of an image by true and predicted class, where there are any; E entries, in the order of the images.

    Shapes: image (E,) position among the images; truth, predicted (E,) position among the classes, predicted C where
    no class was predicted; pixels (E,) > 0.
    """

    image: Counts
    truth: Counts
    predicted: Counts
    pixels: Counts


class Reliability(NamedTuple):
    """Calibration bins of an image by predicted class, where a bin holds pixels; E entries, in the order of the images.

    Shapes: all (E,). ``bin`` b holds confidences in [b, b + 1) / BINS, the last one 1 too; ``correct`` of its
    ``pixels`` were predicted rightly, and ``confidence`` is the sum of their confidences. Pixels may be a sample.
    """

    image: Counts
    predicted: Counts
    bin: Counts
    pixels: Counts
    correct: Counts
    confidence: NDArray[np.float64]


def _no_reliability() -> Reliability:
    none = np.zeros(0, np.int64)
    return Reliability(none, none, none, none, none, np.zeros(0))


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation: its C classes, the ids of its N images, and what was counted in each image.

    ``step`` is the number of the step evaluated, 0 for masks of unknown origin; ``kind`` says which images they are,
    "test" or "validation", and ``convention`` how pixels were scored.
    """

    classes: tuple[RecordedClass, ...]
    images: tuple[str, ...]
    confusions: Confusions
    reliability: Reliability = field(default_factory=_no_reliability)
    step: int = 0
    kind: str = "test"
    convention: str = "full"

    def confusion(self, weights: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the pixels of each true class by predicted class (C, C + 1); the last column: none was predicted.

        ``weights`` (N,) counts every image so many times, by default once.
        """
        size = len(self.classes)
        pixels = self.confusions.pixels.astype(np.float64)
        if weights is not None:
            pixels *= np.asarray(weights, np.float64)[self.confusions.image]
        flat: NDArray[Any] = np.bincount(
            self.confusions.truth * (size + 1) + self.confusions.predicted, pixels, minlength=size * (size + 1)
        )
        return flat.reshape(size, size + 1)

    def per_image(self) -> ImageCounts:
        """Return hits, truth and predicted pixels of every image and class."""
        shape = (len(self.images), len(self.classes))
        image, truth, predicted, pixels = self.confusions
        named, hit = predicted < shape[1], truth == predicted
        return ImageCounts(
            _table(image[hit], truth[hit], pixels[hit], shape),
            _table(image, truth, pixels, shape),
            _table(image[named], predicted[named], pixels[named], shape),
        )

    def select(self, images: Sequence[int]) -> EvaluationRecord:
        """Return the record of some of the images, by position, each at most once."""
        place = np.full(len(self.images), -1, np.int64)
        place[np.asarray(images, np.int64)] = np.arange(len(images))
        return replace(
            self,
            images=tuple(self.images[k] for k in images),
            confusions=Confusions(*_moved(self.confusions, place)),
            reliability=Reliability(*_moved(self.reliability, place)),
        )


class ImageCounts(NamedTuple):
    """Pixels of every image and class, (N, C) each: predicted rightly, of the truth, predicted.

    The union of a class in an image is ``truth + predicted − hits``.
    """

    hits: Counts
    truth: Counts
    predicted: Counts


def join_records(parts: Iterable[EvaluationRecord], images: Sequence[str]) -> EvaluationRecord:
    """Join records of different images of one evaluation, in the order of ``images``."""
    found = list(parts)
    offsets = np.cumsum([0, *(len(one.images) for one in found)])
    joined = replace(
        found[0],
        images=tuple(id for one in found for id in one.images),
        confusions=Confusions(*_stacked([one.confusions for one in found], offsets)),
        reliability=Reliability(*_stacked([one.reliability for one in found], offsets)),
    )
    place = {id: k for k, id in enumerate(joined.images)}
    return joined.select([place[id] for id in images])


def _stacked(parts: Sequence[tuple[NDArray[Any], ...]], offsets: Counts) -> Iterable[NDArray[Any]]:
    images = np.concatenate([part[0] + offset for part, offset in zip(parts, offsets, strict=False)])
    return (images, *(np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True)))


def _moved(entries: tuple[NDArray[Any], ...], place: Counts) -> list[NDArray[Any]]:
    """Renumber the images of entries, drop those of images without a place, and restore the order of the images."""
    image = place[entries[0].astype(np.int64)]
    order = np.argsort(image, kind="stable")
    order = order[image[order] >= 0]
    return [image[order], *(column[order] for column in entries[1:])]


def _table(row: Counts, column: Counts, values: Counts, shape: tuple[int, int]) -> Counts:
    flat = np.bincount(row * shape[1] + column, values, minlength=shape[0] * shape[1])
    return flat.astype(np.int64).reshape(shape)
