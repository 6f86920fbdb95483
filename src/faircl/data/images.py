"""Reading images of any depth and number of bands as (H, W, 3) uint8."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from faircl.data.masks import open_raster
from faircl.data.sample import Image
from faircl.errors import UserError


@dataclass(frozen=True)
class ImageReading:
    """How images become the three channels a network sees."""

    def read(self, path: Path) -> Image:
        """Read an image file as (H, W, 3) uint8."""
        return read_image(path)


RGB = ImageReading()
"""Red, green and blue as stored."""


def read_image(path: Path) -> Image:
    """Any picture Pillow reads, as (H, W, 3) uint8 RGB.

    EXIF orientation is left alone: masks are drawn on the stored raster, and rotating one of the two parts them.
    Alpha is dropped, not blended. 16-bit values lose their low byte; stretching each image to its own range would
    make equal pixels of two images differ.
    """
    image = open_raster(path, "image")
    if image.mode.startswith("I"):
        deep = np.asarray(image)
        if deep.min() < 0 or deep.max() > 65535:
            raise UserError(f"Image {path} holds values from {deep.min()} to {deep.max()}; save it with 8 or 16 bits.")
        return np.repeat((deep >> 8).astype(np.uint8)[..., None], 3, axis=2)
    if image.mode == "F":
        raise UserError(f"Image {path} holds floating point numbers, whose range is unknown; save it with 8 bits.")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # straight to RGB, Pillow warns
    return np.array(image.convert("RGB"), dtype=np.uint8)
