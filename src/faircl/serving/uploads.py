"""An uploaded image: a look at its header first, pixels only of what is small enough."""

from __future__ import annotations

import warnings
from importlib import import_module
from io import BytesIO
from math import prod
from pathlib import Path

from PIL import Image as Pillow
from PIL import UnidentifiedImageError

from faircl.data.images import ImageReading
from faircl.data.sample import Image
from faircl.errors import UserError
from faircl.serving.limits import Limits, Refused

TYPES = ("JPEG", "PNG", "WebP", "BMP", "TIFF")
ACCEPTED = "image/jpeg,image/png,image/webp,image/bmp,image/tiff"
"""The same as MIME types, for the page's choice of files."""
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_TIFF = _SIGNATURES[3:]
_MOST_BANDS = 64
"""Bands of a TIFF, each as large as the image, that are still read."""
_ORIENTATION = 0x0112


def decode_upload(data: bytes, name: str, reading: ImageReading, limits: Limits) -> Image:
    """Return the pixels (H, W, 3) uint8 of an uploaded file; `Refused` says what is wrong with it.

    The size is read from the header before any pixel is decoded, so that a small file that claims to be a large image
    costs nothing. Nothing is written.
    """
    check_header(data, name, limits)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)  # the limit is ours
            return reading.decode(data, Path(name))
    except Refused:
        raise
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
                # Equal pages of a TIFF are read as bands; of other formats the first frame alone is decoded.
                pages = getattr(picture, "n_frames", 1) if picture.format == "TIFF" else 1
    except Pillow.DecompressionBombError:
        raise _too_large(name, "", limits) from None
    except UnidentifiedImageError:
        if data[:4] in _TIFF:
            _check_tiff(data, name, limits)
            return
        raise (_broken(name) if _known(data) else _wrong_type(name)) from None
    except Exception:  # damaged headers make Pillow raise many kinds of errors
        raise _broken(name) from None
    if width * height > limits.max_pixels or (pages > 1 and width * height * pages > limits.max_pixels * _MOST_BANDS):
        raise _too_large(name, f"{width:,} × {height:,} pixels" + (f" on {pages} pages" if pages > 1 else ""), limits)


def is_turned(data: bytes) -> bool:
    """Whether a photo says that it is to be shown turned or mirrored; `data` have passed `check_header`."""
    try:
        with Pillow.open(BytesIO(data)) as picture:
            return picture.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # a TIFF that Pillow does not know, or damaged EXIF data
        return False


def _check_tiff(data: bytes, name: str, limits: Limits) -> None:
    """Check a TIFF that Pillow does not know by tifffile; its own error stands for a missing tifffile."""
    try:
        tifffile = import_module("tifffile")
    except ImportError:
        return
    try:
        with tifffile.TiffFile(BytesIO(data)) as file:
            shape = tuple(int(length) for length in file.series[0].shape)
    except Exception:  # damaged files make tifffile raise many kinds of errors
        raise _broken(name) from None
    if prod(sorted(shape)[-2:]) > limits.max_pixels or prod(shape) > limits.max_pixels * _MOST_BANDS:
        raise _too_large(name, f"the shape {shape}", limits)


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
