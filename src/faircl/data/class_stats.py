"""Statistics of a split: pixels per class, and how balanced the classes are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes


@dataclass(frozen=True)
class ClassStats:
    """One class: its pixels, the images that contain it, and its share of all pixels that are not ignored."""

    id: int
    name: str
    pixels: int
    images: int
    share: float


@dataclass(frozen=True)
class DataStats:
    """A split: its classes by id, ignored pixels, number of images, and how balanced the classes are.

    `entropy` is H = −Σ p_c ln p_c / ln K over the shares p of all K classes, background included where there is one:
    1 if all classes are equally frequent, 0 if one has every pixel. It is NaN for a single class and if every pixel is
    ignored. `major` holds the ids of the most frequent third of the
    classes, K // 3 of them, and `minor` those of the others; both most frequent first, equals by id.
    """

    classes: tuple[ClassStats, ...]
    ignored: int
    images: int
    entropy: float
    major: tuple[int, ...]
    minor: tuple[int, ...]

    @property
    def ranked(self) -> tuple[ClassStats, ...]:
        """Classes, most frequent first."""
        return tuple(self.classes[id] for id in (*self.major, *self.minor))

    @property
    def ignored_share(self) -> float:
        """Share of ignored pixels among all; 0 if there is no pixel."""
        total = self.ignored + sum(one.pixels for one in self.classes)
        return self.ignored / total if total else 0.0

    @property
    def major_share(self) -> float:
        """Share of the major classes among all pixels that are not ignored."""
        return sum(self.classes[id].share for id in self.major)

    def to_json(self, steps: Mapping[int, int] | None = None) -> dict[str, Any]:
        """Return plain values; `steps` maps each id to the step that learns it."""
        names = [one.name for one in self.classes]
        return {
            "images": self.images,
            "ignored_share": self.ignored_share,
            "classes": [asdict(one) | ({} if steps is None else {"step": steps.get(one.id)}) for one in self.classes],
            "entropy": self.entropy,
            "major": [names[id] for id in self.major],
            "minor": [names[id] for id in self.minor],
        }


def data_stats(index: LabelIndex, classes: Classes) -> DataStats:
    """Compute the statistics of a split from its label index."""
    pixels = index.pixels.sum(axis=0)
    images = (index.pixels > 0).sum(axis=0)
    total = int(pixels.sum())
    shares = pixels / total if total else np.zeros(len(pixels))
    ranked = tuple(int(id) for id in np.argsort(-pixels, kind="stable"))  # stable: equal counts stay sorted by id
    third = len(ranked) // 3
    return DataStats(
        tuple(
            ClassStats(id, name, int(pixels[id]), int(images[id]), float(shares[id]))
            for id, name in enumerate(classes.names)
        ),
        ignored=0 if index.ignored is None else int(index.ignored.sum()),
        images=len(index.ids),
        entropy=normalised_entropy(shares),
        major=ranked[:third],
        minor=ranked[third:],
    )


def normalised_entropy(shares: NDArray[np.float64]) -> float:
    """Return −Σ p ln p / ln K of shares (K,) that add up to one, with 0 ln 0 = 0; NaN for K = 1 or if all are 0."""
    positive = shares[shares > 0]
    if len(shares) < 2 or not len(positive):
        return math.nan
    return float(-(positive * np.log(positive)).sum() / math.log(len(shares))) + 0.0  # turns −0 into 0
