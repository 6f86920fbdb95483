"""Which classes each image holds, and how many pixels of each: one pass over a split."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faircl.data.sample import SegmentationData


@dataclass(frozen=True)
class LabelIndex:
    """Pixels of every class in every image of a split.

    Shapes: ids (N,); pixels (N, K) int64 by raw id, void not counted.
    """

    ids: tuple[str, ...]
    pixels: NDArray[np.int64]


def index_labels(data: SegmentationData, split: str, advance: Callable[[], None] = lambda: None) -> LabelIndex:
    """Read every image and mask of a split once and count its classes.

    Images are decoded too, though only masks are counted: a broken or ill-sized file is then found before training
    starts and not in its middle.
    """
    ids = tuple(data.ids(split))
    classes = len(data.classes.names)

    def count(id: str) -> NDArray[np.int64]:
        mask = data.read(split, id).mask
        found = np.bincount(mask.ravel(), minlength=classes)[:classes]
        advance()
        return found

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(count, ids))
    return LabelIndex(ids, np.stack(rows).astype(np.int64) if rows else np.zeros((0, classes), np.int64))
