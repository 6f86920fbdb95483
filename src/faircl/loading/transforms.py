"""Joint image and mask operations.

Parameters are drawn once from a counted generator and applied to the image and to any number of masks, so that
labels and assigned labels stay aligned to the pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image as Pillow
from torch import Tensor

from faircl.data.sample import Image
from faircl.labels import Mask, ignore_value

PAD_COLOUR = (124, 116, 104)
"""Colour outside the image: the ImageNet mean, about zero once the network has normalised it."""


@dataclass(frozen=True)
class Crop:
    """A window of the source image, resampled to an output size and optionally mirrored.

    ``top, left, height, width`` are in source pixels and may reach beyond the image; the window is resampled to
    ``size`` × ``size``.
    """

    top: int
    left: int
    height: int
    width: int
    size: int
    flip: bool

    @classmethod
    def draw(
        cls, rng: np.random.Generator, shape: tuple[int, int], size: int, scale: tuple[float, float], flip: bool
    ) -> Crop:
        """Draw a window for an image of a shape (H, W), zoomed by a log-uniform factor within ``scale``."""
        zoom = float(np.exp(rng.uniform(np.log(scale[0]), np.log(scale[1]))))
        side = max(round(size / zoom), 1)  # whole pixels, so that image and masks are cut at the same places
        top, left = (_offset(rng, extent, side) for extent in shape)
        return cls(top, left, side, side, size, bool(flip and rng.random() < 0.5))

    def clip_to(self, shape: Sequence[int]) -> tuple[tuple[slice, slice], Crop]:
        """Return the region of an image (H, W) that the window covers, and the crop in coordinates of that region."""
        rows, cols = (
            slice(min(max(start, 0), extent), min(max(start + length, 0), extent))
            for start, length, extent in (
                (self.top, self.height, shape[0]),
                (self.left, self.width, shape[1]),
            )
        )
        return (rows, cols), replace(self, top=self.top - rows.start, left=self.left - cols.start)

    def _index(self, start: int, length: int, flip: bool) -> NDArray[np.int64]:
        """Source row or column of every output pixel centre."""
        # ⌊start + (k + ½)·length/size⌋ in integers, where floats could round below an exact centre.
        index = start + (2 * np.arange(self.size, dtype=np.int64) + 1) * length // (2 * self.size)
        return np.flip(index) if flip else index

    def mask(self, mask: Mask, fill: int | None = None) -> Mask:
        """Sample a mask (H, W) by nearest neighbour; outside the image it is ``fill``, by default the ignore value."""
        rows = self._index(self.top, self.height, False)
        cols = self._index(self.left, self.width, self.flip)
        down, right = (
            np.flatnonzero((index >= 0) & (index < extent))
            for index, extent in ((rows, mask.shape[0]), (cols, mask.shape[1]))
        )
        # Rows first, then columns, takes a third of the time of one two-dimensional index.
        taken: Mask = mask.take(rows[down], 0).take(cols[right], 1)
        if taken.shape == (self.size, self.size):
            return taken
        padded: Mask = np.full((self.size, self.size), ignore_value(mask) if fill is None else fill, mask.dtype)
        if taken.size:  # the part inside the image is one rectangle
            padded[down[0] : down[-1] + 1, right[0] : right[-1] + 1] = taken
        return padded

    def image(self, image: Image) -> Tensor:
        """Sample an image (H, W, 3) as ``sample`` does."""
        return self.sample(torch.from_numpy(image if image.flags.writeable else image.copy()))

    def sample(self, image: Tensor) -> Tensor:
        """Sample an image (H, W, 3) uint8 bilinearly with antialiasing: (3, size, size) uint8.

        The channels stay last in memory; a whole batch is reordered at once, on the device.
        """
        (rows, cols), part = self.clip_to(image.shape)
        window = image[rows, cols].contiguous()
        if window.shape[:2] != (self.height, self.width):
            source = window
            row = _pad_colour(image.device).repeat(self.width)  # filling by rows is faster than by pixels
            window = row.repeat(self.height, 1).view(self.height, self.width, 3)
            window[-part.top : source.shape[0] - part.top, -part.left : source.shape[1] - part.left] = source
        if self.height != self.size or self.width != self.size:
            window = _resize(window, self.size)
        pixels = window.permute(2, 0, 1)
        return pixels.flip(2) if self.flip else pixels


def _resize(window: Tensor, size: int) -> Tensor:
    """Resize (H, W, 3) uint8 to (size, size, 3)."""
    # The batch axis comes first, so that torch recognises the channels-last format and does not copy.
    pixels = window[None].permute(0, 3, 1, 2)
    # On the CPU torch resizes uint8 ten times as fast as floats.
    whole = window.device.type == "cpu"
    resized = F.interpolate(pixels if whole else pixels.float(), (size, size), mode="bilinear", antialias=True)
    return (resized if whole else resized.round().clamp(0, 255).to(torch.uint8)).permute(0, 2, 3, 1)[0]


@cache
def _pad_colour(device: torch.device) -> Tensor:
    return torch.tensor(PAD_COLOUR, dtype=torch.uint8, device=device)


@dataclass(frozen=True)
class CentreCrop:
    """Resize the short side to ``size`` pixels and cut the central square, as published evaluations do."""

    size: int

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
        """Return height and width after resizing, and top and left of the crop."""
        short = min(shape[:2])
        high, wide = (extent * self.size // short for extent in shape[:2])
        return high, wide, round((high - self.size) / 2), round((wide - self.size) / 2)

    def image(self, image: Image) -> Image:
        """Crop an image (H, W, 3), resized bilinearly with antialiasing."""
        high, wide, top, left = self._shape(image.shape)
        resized = np.array(Pillow.fromarray(image).resize((wide, high), Pillow.Resampling.BILINEAR))
        return resized[top : top + self.size, left : left + self.size]

    def mask(self, mask: Mask) -> Mask:
        """Crop a mask (H, W), resized by nearest neighbour."""
        high, wide, top, left = self._shape(mask.shape)
        rows, cols = (
            (2 * np.arange(start, start + self.size) + 1) * extent // (2 * new)
            for start, extent, new in ((top, mask.shape[0], high), (left, mask.shape[1], wide))
        )
        taken: Mask = mask[rows[:, None], cols]
        return taken


def _offset(rng: np.random.Generator, extent: int, side: int) -> int:
    """Draw the start of a window on one axis: inside the image, or around it if the image is smaller."""
    low, high = sorted((0, extent - side))
    return int(rng.integers(low, high, endpoint=True))


def jitter_gains(rng: np.random.Generator, strength: float) -> Tensor | None:
    """Draw the gains (5,) of contrast, brightness, red, green and blue, all in 1 ± strength; None for strength 0."""
    if strength == 0:
        return None
    return torch.from_numpy(rng.uniform(1 - strength, 1 + strength, 5)).float()


def jitter(images: Tensor, gains: Tensor) -> Tensor:
    """Scale contrast, brightness and each colour channel of images (B, 3, H, W) uint8 by gains (B, 5).

        x' = ((x − m) · g₀ + m · g₁) · g_c,    m the mean of the image,

    rounded and clipped to 0 … 255.
    """
    # An integer sum is the same on every device and for any number of threads.
    mean = images.sum((1, 2, 3)).float()[:, None, None, None] / images[0].numel()
    contrast, brightness = (gains[:, k, None, None, None] for k in range(2))
    pixels = (images.float() - mean) * contrast + mean * brightness
    return (pixels * gains[:, 2:, None, None]).round().clamp(0, 255).to(torch.uint8)
