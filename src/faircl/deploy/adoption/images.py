"""The images that an adopted network's classes are described by, with or without labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from faircl.data.images import ImageReading
from faircl.data.sample import SegmentationData
from faircl.labels import LabelTable
from faircl.loading.whole_images import WholeImages, same_size_batches
from faircl.progress import Reporter

Batches = Iterator[tuple[Tensor, Tensor | None]]
LABEL = "describe the classes"


def unlabelled_batches(files: list[Path], reading: ImageReading, batch: int, reporter: Reporter) -> Batches:
    """Yield images of one size, up to ``batch`` at a time, read as `faircl.load` reads them."""
    with reporter.task(LABEL, len(files)) as task:
        group: list[Tensor] = []
        for file in files:
            image = torch.from_numpy(np.ascontiguousarray(reading.read(file))).permute(2, 0, 1)
            if group and (len(group) == batch or group[0].shape != image.shape):
                yield torch.stack(group), None
                group = []
            group.append(image)
            task.advance()
        if group:
            yield torch.stack(group), None


def labelled_batches(
    data: SegmentationData, split: str, table: LabelTable, batch: int, workers: int, reporter: Reporter
) -> Batches:
    """Yield images of a split with the labels that a table gives them."""
    images = WholeImages(data, split, tuple(data.ids(split)), table)
    with reporter.task(LABEL, len(images)) as task:
        for group in same_size_batches(images, batch, workers, reporter):
            yield torch.stack([item.image for item in group]), torch.stack([item.labels for item in group])
            for _ in group:
                task.advance()
