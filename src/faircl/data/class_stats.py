"""How the pixels of a split are spread over its classes."""

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
    """One class: its pixels, the images that show it, and its share of all pixels that are not void."""

    id: int
    name: str
    pixels: int
    images: int
    share: float


@dataclass(frozen=True)
class DataStats:
    """A split: its classes by id, void pixels, number of images, and how even the classes are.

    `entropy` is H = −Σ p_c ln p_c / ln K over the shares p of all K classes, background included where there is one:
    1 where all classes are equally frequent, 0 where one has every pixel. It is NaN for a single class, which is
    neither even nor uneven, and where every pixel is void. `major` holds the ids of the most frequent third of the
    classes, K // 3 of them, and `minor` those of the others; both most frequent first, equals by id.
    """

    classes: tuple[ClassStats, ...]
    void: int
    images: int
    entropy: float
    major: tuple[int, ...]
    minor: tuple[int, ...]

    @property
    def ranked(self) -> tuple[ClassStats, ...]:
        """Classes, most frequent first."""
        return tuple(self.classes[id] for id in (*self.major, *self.minor))

    @property
    def void_share(self) -> float:
        """Void pixels among all; 0 where there is no pixel."""
        total = self.void + sum(one.pixels for one in self.classes)
        return self.void / total if total else 0.0

    @property
    def major_share(self) -> float:
        """What the major classes hold of all pixels that are not void."""
        return sum(self.classes[id].share for id in self.major)

    def to_json(self, steps: Mapping[int, int] | None = None) -> dict[str, Any]:
        """Return plain values; `steps` gives the step that learns each id, background being there from step 0."""
        names = [one.name for one in self.classes]
        return {
            "images": self.images,
            "void_share": self.void_share,
            "classes": [asdict(one) | ({} if steps is None else {"step": steps.get(one.id)}) for one in self.classes],
            "entropy": self.entropy,
            "major": [names[id] for id in self.major],
            "minor": [names[id] for id in self.minor],
        }


def data_stats(index: LabelIndex, classes: Classes) -> DataStats:
    """Sum up the labels of a split."""
    pixels = index.pixels.sum(axis=0)
    shown = (index.pixels > 0).sum(axis=0)
    total = int(pixels.sum())
    shares = pixels / total if total else np.zeros(len(pixels))
    ranked = tuple(int(id) for id in np.argsort(-pixels, kind="stable"))  # stable: equals stay by id
    third = len(ranked) // 3
    return DataStats(
        tuple(
            ClassStats(id, name, int(pixels[id]), int(shown[id]), float(shares[id]))
            for id, name in enumerate(classes.names)
        ),
        void=0 if index.void is None else int(index.void.sum()),
        images=len(index.ids),
        entropy=normalised_entropy(shares),
        major=ranked[:third],
        minor=ranked[third:],
    )


def normalised_entropy(shares: NDArray[np.float64]) -> float:
    """−Σ p ln p / ln K of shares (K,) that add up to one, 0 ln 0 being 0; NaN for K = 1 and where all are 0."""
    there = shares[shares > 0]
    if len(shares) < 2 or not len(there):
        return math.nan
    return float(-(there * np.log(there)).sum() / math.log(len(shares))) + 0.0  # not −0
