"""The baseline of ``faircl bench input``: Pillow and torch's DataLoader, with float images and int64 masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from faircl.readers.folder import FolderData

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class PlainDataset(Dataset[tuple[Tensor, Tensor]]):
    """Random crops of ``size`` with random scaling and flips, as float32 (3, S, S) and int64 (S, S)."""

    data: FolderData
    images: tuple[str, ...]
    size: int
    scale: tuple[float, float]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Decode, scale, pad, crop, flip and normalise an image and its mask."""
        id, side = self.images[index], self.size
        image = Pillow.open(self.data.image_path("train", id)).convert("RGB")
        mask: Pillow.Image = Pillow.open(self.data.mask_path("train", id))
        scale = float(torch.empty(1).uniform_(*self.scale))
        width, height = round(image.width * scale), round(image.height * scale)
        image = image.resize((width, height), Pillow.Resampling.BILINEAR)
        mask = mask.resize((width, height), Pillow.Resampling.NEAREST)
        left, top = (int(torch.randint(max(extent - side, 0) + 1, ())) for extent in (width, height))
        box = (left, top, left + side, top + side)  # Pillow pads what lies outside of the image
        image, mask = image.crop(box), mask.crop(box)
        if torch.rand(()) < 0.5:
            image, mask = (one.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT) for one in (image, mask))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
        return (pixels - mean) / std, torch.from_numpy(np.array(mask)).long()


def plain_batches(
    dataset: PlainDataset, batch: int, count: int, workers: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ``count`` random crops in batches on the device."""
    sampler = RandomSampler(dataset, replacement=True, num_samples=count)
    loader = DataLoader(
        dataset, batch, sampler=sampler, num_workers=workers, pin_memory=device.type == "cuda", drop_last=True
    )
    for images, masks in loader:
        yield images.to(device, non_blocking=True), masks.to(device, non_blocking=True)
