"""Whole images with a step's labels, for evaluation and for scans before a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faircl.data.sample import SegmentationData
from faircl.labels import LabelTable, apply_table
from faircl.loading.stalled_workers import say_if_stalled
from faircl.loading.transforms import CentreCrop
from faircl.loading.worker_errors import unwrap_user_errors
from faircl.parallel import available_cores
from faircl.progress import Reporter, SilentReporter
from faircl.stop_signals import ignore_stop_signals


class WholeImage(NamedTuple):
    """One image, not augmented: image (3, H, W) uint8, labels (H, W) int32."""

    id: str
    image: Tensor
    labels: Tensor


@dataclass(frozen=True)
class WholeImages(Dataset[WholeImage]):
    """Images of a split at their own size, or their centre crops.

    ``table`` is the label table; ``tables`` overrides it by image id.
    """

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
        labels = apply_table(self.tables.get(id, self.table), mask)
        return WholeImage(id, pixels, torch.from_numpy(labels.astype(np.int32)))


def same_size_batches(
    images: WholeImages, batch: int, workers: int, reporter: Reporter | None = None
) -> Iterator[list[WholeImage]]:
    """Yield lists of up to ``batch`` consecutive images of one size, so that none needs padding.

    The reporter is told of workers that do not answer.
    """
    loader: DataLoader[WholeImage] = DataLoader(
        images, batch_size=None, num_workers=min(workers, available_cores()), worker_init_fn=ignore_stop_signals
    )
    group: list[WholeImage] = []
    for item in unwrap_user_errors(say_if_stalled(loader, reporter or SilentReporter())):
        if group and (len(group) == batch or group[0].image.shape != item.image.shape):
            yield group
            group = []
        group.append(item)
    if group:
        yield group
