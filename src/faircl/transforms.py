"""Joint image and mask operations.

Parameters are drawn once from a counted generator and applied to the image and to any number of masks, so that
labels and assigned labels stay aligned to the pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.sample import IGNORE, Image, Mask

PAD_COLOUR = (124, 116, 104)
"""Colour outside the image: the ImageNet mean, about zero once the network has normalised it."""


@dataclass(frozen=True)
class Crop:
    """A window of the source image, drawn at an output size, perhaps mirrored.

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
        side = max(round(size / zoom), 1)  # whole pixels, so that image and masks see exactly the same window
        top, left = (_offset(rng, extent, side) for extent in shape)
        return cls(top, left, side, side, size, bool(flip and rng.random() < 0.5))

    def _index(self, start: int, length: int, flip: bool) -> NDArray[np.int64]:
        """Source row or column of every output pixel centre."""
        # ⌊start + (k + ½)·length/size⌋ in whole numbers: the division must not fall short of an exact centre.
        index = start + (2 * np.arange(self.size, dtype=np.int64) + 1) * length // (2 * self.size)
        return np.flip(index) if flip else index

    def mask(self, mask: NDArray[np.uint16], fill: int = IGNORE) -> NDArray[np.uint16]:
        """Sample a mask (H, W) by nearest neighbour; ``fill`` outside."""
        rows = self._index(self.top, self.height, False)
        cols = self._index(self.left, self.width, self.flip)
        inside = ((rows >= 0) & (rows < mask.shape[0]))[:, None] & ((cols >= 0) & (cols < mask.shape[1]))
        # Rows and then columns: a third of the time of both at once.
        taken = mask.take(rows.clip(0, mask.shape[0] - 1), 0).take(cols.clip(0, mask.shape[1] - 1), 1)
        return taken if inside.all() else np.where(inside, taken, np.asarray(fill, mask.dtype))

    def image(self, image: Image) -> torch.Tensor:
        """Sample an image (H, W, 3) bilinearly, low-passed where it shrinks: (3, size, size) uint8."""
        top, left, bottom, right = self.top, self.left, self.top + self.height, self.left + self.width
        window = np.empty((self.height, self.width, 3), np.uint8)
        source = image[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        if source.shape != window.shape:
            window[:] = np.tile(np.asarray(PAD_COLOUR, np.uint8), (self.width, 1))  # row by row, not pixel by pixel
        at = max(-top, 0), max(-left, 0)
        window[at[0] : at[0] + source.shape[0], at[1] : at[1] + source.shape[1]] = source
        tensor = torch.from_numpy(window).permute(2, 0, 1)
        if tensor.shape[1:] != (self.size, self.size):
            # In whole numbers and with the channels last torch has a vectorised way, ten times as fast as floats.
            tensor = F.interpolate(tensor[None], (self.size, self.size), mode="bilinear", antialias=True)[0]
        tensor = tensor.flip(2) if self.flip else tensor
        return tensor.contiguous()


@dataclass(frozen=True)
class CentreCrop:
    """The middle square of an image once its short side is ``size`` pixels, as published evaluations cut it."""

    size: int

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
        """Return height and width after resizing, and the crop's top and left."""
        short = min(shape[:2])
        high, wide = (extent * self.size // short for extent in shape[:2])
        return high, wide, round((high - self.size) / 2), round((wide - self.size) / 2)

    def image(self, image: Image) -> Image:
        """Crop an image (H, W, 3), resized bilinearly and low-passed where it shrinks."""
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
    """Place a window on an axis: anywhere inside, or anywhere around where the image is the smaller one."""
    low, high = sorted((0, extent - side))
    return int(rng.integers(low, high, endpoint=True))


def jitter(image: torch.Tensor, rng: np.random.Generator, strength: float) -> torch.Tensor:
    """Scale brightness, contrast and each colour channel by factors in 1 ± strength; image (3, H, W) uint8."""
    if strength == 0:
        return image
    gain = torch.from_numpy(rng.uniform(1 - strength, 1 + strength, 5)).float()
    pixels = image.float()
    pixels = (pixels - pixels.mean()) * gain[0] + pixels.mean() * gain[1]
    return (pixels * gain[2:, None, None]).round().clamp(0, 255).to(torch.uint8)
