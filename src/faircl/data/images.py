"""Reading images of any bit depth and number of bands as (H, W, 3) uint8."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.multiband_images import decode_npy, decode_png16, decode_tiff, is_colour_png16, needs_tifffile
from faircl.data.raster_files import decode_raster, file_bytes
from faircl.data.sample import Image
from faircl.errors import UserError

_BAND = 1 << 22  # pixels of a picture that are converted at a time


@dataclass(frozen=True)
class ImageReading:
    """How image files become three 8-bit channels.

    `bands`: the bands, from 0, that become red, green and blue; None: the first three, or the only one three times.
    `value_range`: the values that become 0 and 255, linear between them and clipped outside; None: the whole range of
    8 or 16 bits. Both apply to a whole data set, so that equal values of two images stay equal.
    """

    bands: tuple[int, int, int] | None = None
    value_range: tuple[float, float] | None = None

    def read(self, path: Path) -> Image:
        """Read an image file as (H, W, 3) uint8: formats of Pillow, .npy arrays, multi-band TIFFs."""
        data = file_bytes(path, "image")
        if path.suffix.lower() == ".npy":
            return self._channels(decode_npy(data, path), path)
        return self.decode(data, path)

    def decode(self, data: bytes, path: Path) -> Image:
        """Decode the bytes of an image file, as `read` does; `path` is for errors. The bytes of .npy files are not."""
        exact = self.value_range is not None
        if needs_tifffile(data, self.bands is not None, exact):
            return self._channels(decode_tiff(data, path), path)
        if exact and is_colour_png16(data):
            return self._channels(decode_png16(data, path), path)
        if self == RGB:
            return decode_image(data, path)
        return self.convert(decode_raster(data, path, "image"), path)

    def convert(self, picture: Pillow.Image, path: Path) -> Image:
        """Convert a decoded picture of any mode to (H, W, 3) uint8, as `read` does; `path` is for errors."""
        if self == RGB:
            return _rgb(picture, path)
        return self._channels(_pixel_array(picture), path)

    def _channels(self, stored: NDArray[Any], path: Path) -> Image:
        """Select the bands of an array (H, W) or (H, W, C) and convert them to 8 bits."""
        bands = stored if stored.ndim == 3 else stored[..., None]
        count = bands.shape[2]
        if self.bands is None and count == 2:
            raise UserError(f"Image {path} has 2 bands; set data.bands to the three that become red, green and blue.")
        chosen = self.bands or ((0, 0, 0) if count == 1 else (0, 1, 2))
        if not 0 <= min(chosen) <= max(chosen) < count:
            has = f"{count} bands, 0 to {count - 1}" if count > 1 else "one band, 0"
            raise UserError(f"Image {path} has {has}, but data.bands is {list(chosen)}; choose among those it has.")
        return _to_uint8(bands[..., list(chosen)], path, self.value_range)


RGB = ImageReading()
"""The default: red, green and blue as stored."""


def decode_image(data: bytes, path: Path) -> Image:
    """Decode the bytes of any image that Pillow reads to (H, W, 3) uint8 RGB; `path` is for errors.

    EXIF orientation is not applied, because masks are drawn on the stored pixels. Alpha is dropped without blending.
    16-bit values lose their low byte.
    """
    if (pixels := _decode_jpeg(data)) is not None:
        return pixels
    return _rgb(decode_raster(data, path, "image"), path)


def _rgb(picture: Pillow.Image, path: Path) -> Image:
    """Convert a decoded picture of any mode to (H, W, 3) uint8 RGB."""
    if picture.mode.startswith("I") or picture.mode == "F":
        deep = np.asarray(picture)[..., None]
        return _to_uint8(np.repeat(deep, 3, axis=2), path, None)
    wide, high = picture.size
    pixels = np.empty((high, wide, 3), np.uint8)
    count = max(1, _BAND // max(1, wide))
    for top in range(0, high, count):  # Pillow makes several copies of what it converts
        rows = _without_palette_alpha(picture.crop((0, top, wide, min(top + count, high))))
        pixels[top : top + count] = np.asarray(rows.convert("RGB"))
    return pixels


def _decode_jpeg(data: bytes) -> Image | None:
    """Decode an RGB JPEG with torchvision, in half of Pillow's time and to the same pixels.

    Return None for other and for damaged files, and if torchvision is not imported yet: importing it takes longer than
    it would save.
    """
    library = sys.modules.get("torchvision.io")
    if library is None or data[:3] != b"\xff\xd8\xff":
        return None
    import torch  # imported by torchvision already

    try:
        if Pillow.open(BytesIO(data)).mode != "RGB":  # gray or CMYK
            return None
        pixels = library.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), library.ImageReadMode.RGB)
    except Exception:  # Pillow then raises an error with a reason
        return None
    decoded: Image = pixels.permute(1, 2, 0).numpy()
    return np.ascontiguousarray(decoded)


def _pixel_array(picture: Pillow.Image) -> NDArray[Any]:
    """Return the pixels (H, W) or (H, W, C) of a picture; palettes and other colour spaces are converted to RGB."""
    if picture.mode == "LA" or picture.mode == "1":  # alpha is not a band
        return np.asarray(picture.convert("L"))
    kept = picture.mode in ("L", "RGB", "RGBA", "F") or picture.mode.startswith("I")
    return np.asarray(picture if kept else _without_palette_alpha(picture).convert("RGB"))


def _without_palette_alpha(picture: Pillow.Image) -> Pillow.Image:
    """Convert a palette with transparency to RGBA, because Pillow warns if it is converted to RGB directly."""
    return picture.convert("RGBA") if picture.mode == "P" and "transparency" in picture.info else picture


def _to_uint8(numbers: NDArray[Any], path: Path, value_range: tuple[float, float] | None) -> Image:
    """Scale values of any type to 0 … 255; NaN becomes 0."""
    if value_range is not None:
        low, high = value_range
        scaled = (numbers.astype(np.float64) - low) * 255 / (high - low)
        return np.rint(np.clip(np.nan_to_num(scaled, nan=0.0), 0, 255)).astype(np.uint8)
    if numbers.dtype == np.uint8:
        return np.ascontiguousarray(numbers)
    if numbers.dtype.kind == "f":
        raise UserError(
            f"Image {path} holds floating point numbers, whose range is unknown; set data.value_range to the values "
            "that become 0 and 255, or save it with 8 bits."
        )
    if numbers.min() < 0 or numbers.max() > 65535:
        raise UserError(
            f"Image {path} holds values from {numbers.min()} to {numbers.max()}; set data.value_range to the values "
            "that become 0 and 255, or save it with 8 or 16 bits."
        )
    return (numbers >> 8).astype(np.uint8)
