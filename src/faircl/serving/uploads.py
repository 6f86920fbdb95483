"""An uploaded image: a look at its header first, pixels only of what is small enough."""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import UnidentifiedImageError

from faircl.data.images import ImageReading
from faircl.data.multiband_images import needs_tifffile
from faircl.data.sample import Image
from faircl.errors import UserError
from faircl.serving.limits import Limits, Refused, size_in_words

TYPES = ("JPEG", "PNG", "WebP", "BMP", "TIFF")
ACCEPTED = "image/jpeg,image/png,image/webp,image/bmp,image/tiff"
"""The same as MIME types, for the page's choice of files."""
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", *_TIFF)
_PIXEL_BYTES = 16
"""Bytes per pixel, of all bands together, that are still read of a TIFF."""
_ORIENTATION = 0x0112

logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # what is wrong with a file is told on the page


def decode_upload(data: bytes, name: str, reading: ImageReading, limits: Limits) -> Image:
    """Return the pixels (H, W, 3) uint8 of an uploaded file; `Refused` says what is wrong with it.

    The size is read from the header before any pixel is decoded, so that a small file that claims to be a large image
    costs nothing. Nothing is written.
    """
    check_header(data, name, limits)
    if needs_tifffile(data, reading.bands is not None, reading.value_range is not None):
        _check_tiff(data, name, limits)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)  # the limit is ours
            return reading.decode(data, Path(name))
    except UserError as error:
        raise Refused(422, str(error)) from None


def check_header(data: bytes, name: str, limits: Limits) -> None:
    """Raise `Refused` for a file that is empty, no image of `TYPES`, damaged at its beginning, or too large."""
    if not data:
        raise Refused(422, f"Image {name} is an empty file; choose another.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            with Pillow.open(BytesIO(data), formats=[one.upper() for one in TYPES]) as picture:
                width, height = picture.size
    except Pillow.DecompressionBombError:
        raise _too_large(name, "", limits) from None
    except UnidentifiedImageError:
        if data[:4] in _TIFF:  # tifffile may know it
            return
        raise (_broken(name) if _known(data) else _wrong_type(name)) from None
    except Exception:  # damaged headers make Pillow raise many kinds of errors
        raise _broken(name) from None
    if width * height > limits.max_pixels:
        raise _too_large(name, f"{width:,} × {height:,} pixels", limits)


def is_turned(data: bytes) -> bool:
    """Whether a photo says that it is to be shown turned or mirrored; `data` have passed `check_header`."""
    try:
        with Pillow.open(BytesIO(data)) as picture:
            return picture.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # a TIFF that Pillow does not know, or damaged EXIF data
        return False


def _check_tiff(data: bytes, name: str, limits: Limits) -> None:
    """Check a TIFF that tifffile will read: its bands and pages count, and its description may claim any number.

    Without tifffile it is refused later, with a hint how to install it.
    """
    try:
        tifffile = import_module("tifffile")
    except ImportError:
        return
    try:
        with tifffile.TiffFile(BytesIO(data)) as file:
            series = file.series[0]
            lengths = dict(zip(str(series.axes), map(int, series.shape), strict=True))
            memory = int(series.size) * np.dtype(series.dtype).itemsize
    except Exception:  # damaged files make tifffile raise many kinds of errors
        raise _broken(name) from None
    width, height = lengths.get("X", 1), lengths.get("Y", 1)
    if width * height > limits.max_pixels:
        raise _too_large(name, f"{width:,} × {height:,} pixels", limits)
    if memory > _PIXEL_BYTES * limits.max_pixels:
        raise Refused(413, f"Image {name} has too many bands or pages, {size_in_words(memory)} in all; leave some out.")


def _known(data: bytes) -> bool:
    return data.startswith(_SIGNATURES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")


def _broken(name: str) -> Refused:
    return Refused(422, f"Image {name} cannot be decoded: it is not a complete picture; copy or export it again.")


def _wrong_type(name: str) -> Refused:
    known = f"{', '.join(TYPES[:-1])} or {TYPES[-1]}"
    return Refused(415, f"File {name} is not an image of a known type; expected {known}: convert it to one of these.")


def _too_large(name: str, found: str, limits: Limits) -> Refused:
    has = f"has {found}" if found else "claims more pixels than any photo has"
    return Refused(
        413,
        f"Image {name} {has}; at most {limits.max_pixels:,} are accepted: make it smaller, or start the server with a "
        "larger --max-pixels.",
    )
