"""Images with more bands or bits than Pillow reads: .npy arrays, multi-band TIFFs, 16-bit colour PNGs."""

from __future__ import annotations

import logging
import struct
import zlib
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.raster_files import decode_raster
from faircl.errors import UserError

PixelArray = NDArray[Any]  # (H, W) or (H, W, C)

_TIFF_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_BITS, _SAMPLES, _PLANES = 258, 277, 284  # TIFF tags: bits per sample, samples per pixel, planar configuration
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {2: 3, 4: 2, 6: 4}  # channels by PNG colour type, of types with several

# Pillow logs an error for each TIFF with more than six bands, which tifffile reads below.
logging.getLogger("PIL.TiffImagePlugin").addFilter(lambda record: "samples per pixel" not in str(record.msg))


def decode_npy(data: bytes, path: Path) -> PixelArray:
    """Return the array (H, W) or (H, W, C) of a .npy file's bytes; pickled objects are refused."""
    try:
        stored: PixelArray = np.lib.format.read_array(BytesIO(data), allow_pickle=False)
    except Exception as error:  # a damaged header makes NumPy raise many kinds of errors
        found = "an empty file" if not data else "not a complete array of numbers"
        raise UserError(f"Image {path} cannot be decoded: it is {found}; save it again with numpy.save.") from error
    return _check_array(stored, path)


def needs_tifffile(data: bytes, all_bands: bool, exact: bool) -> bool:
    """Whether a file is a TIFF that Pillow cannot read, or not completely.

    Pillow drops bands beyond RGB (relevant with `all_bands`), the low byte of 16-bit colours (relevant with `exact`)
    and further pages, and decodes 16-bit colours in separate planes wrongly.
    """
    if data[:4] not in _TIFF_SIGNATURES:
        return False
    try:
        picture = Pillow.open(BytesIO(data))
        tags: Any = getattr(picture, "tag_v2", {})
        bits, samples, shown = max(tags.get(_BITS, (1,))), tags.get(_SAMPLES, 1), len(picture.getbands())
        if samples != shown and (all_bands or shown < 3):
            return True
        return _has_equal_pages(picture) or (samples > 1 and bits > 8 and (exact or tags.get(_PLANES, 1) == 2))
    except Exception:  # unknown to Pillow, or damaged, which tifffile reports
        return True


def _has_equal_pages(picture: Pillow.Image) -> bool:
    """Whether a further page has the size of the first: such pages are bands, smaller ones previews."""
    size = picture.size
    for page in range(1, getattr(picture, "n_frames", 1)):
        picture.seek(page)
        if picture.size == size:
            return True
    return False


def decode_tiff(data: bytes, path: Path) -> PixelArray:
    """Return the bands (H, W) or (H, W, C) of a TIFF file's bytes, stored interleaved, in planes or in pages."""
    try:
        tifffile = import_module("tifffile")
    except ImportError as error:
        raise UserError(
            f"Image {path} is a TIFF that Pillow cannot read: it is broken, or has more bands, bits or pages than it "
            "knows; for such files, pip install 'faircl[tiff]'."
        ) from error
    try:
        with tifffile.TiffFile(BytesIO(data)) as file:
            series = file.series[0]
            axes, stored = str(series.axes), np.asarray(series.asarray())
        if stored.ndim != len(axes):
            raise ValueError("shape and axes differ")
    except Exception as error:  # damaged files make tifffile raise many kinds of errors
        if "imagecodecs" in str(error):
            raise UserError(
                f"Image {path} is compressed in a way that tifffile reads with imagecodecs only; "
                "pip install imagecodecs, or save it with deflate compression."
            ) from error
        raise UserError(
            f"Image {path} cannot be decoded: it is not a complete picture ({type(error).__name__}); copy or export it "
            "again."
        ) from error
    spare = tuple(place for place, axis in enumerate(axes) if axis not in "YX" and stored.shape[place] == 1)
    axes, stored = "".join(axis for place, axis in enumerate(axes) if place not in spare), stored.squeeze(spare)
    if len(axes) > 3 or "Y" not in axes or "X" not in axes:
        raise UserError(
            f"Image {path} has shape {stored.shape}, axes {axes}; expected height, width and at most one axis of bands."
        )
    order = [axes.index("Y"), axes.index("X")]
    return _check_array(stored.transpose(order + [place for place in range(len(axes)) if place not in order]), path)


def is_colour_png16(data: bytes) -> bool:
    """Whether a file is a 16-bit PNG with several channels, which Pillow reduces to 8 bits."""
    return data[:8] == _PNG_SIGNATURE and data[24:25] == b"\x10" and data[25] in _PNG_CHANNELS


def decode_png16(data: bytes, path: Path) -> NDArray[np.uint16]:
    """Return the 16-bit values (H, W, C) of a PNG's bytes; gray with alpha is returned without alpha.

    PNG filters combine each byte with the same byte of neighbouring pixels. Each of the 2·C bytes of a pixel is
    therefore an 8-bit picture of its own with the same filters, which Pillow can decode.
    """
    decode_raster(data, path, "image")  # raises an error for a damaged file
    wide, high, _, kind, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    if interlaced:
        raise UserError(
            f"Image {path} is an interlaced 16-bit PNG, of which only 8 bits can be read; save it without interlacing."
        )
    size = 2 * _PNG_CHANNELS[kind]
    packed = b"".join(body for name, body in _png_chunks(data) if name == b"IDAT")
    whole_rows = zlib.decompressobj().decompress(packed, high * (1 + wide * size))  # what follows may be endless
    rows = np.frombuffer(whole_rows, np.uint8).reshape(high, 1 + wide * size)
    filters, pixels = rows[:, :1], rows[:, 1:].reshape(high, wide, size)
    planes = [_grey_png(np.hstack([filters, pixels[..., place]]), wide, high) for place in range(size)]
    whole = np.stack([np.asarray(decode_raster(plane, path, "image")) for plane in planes], axis=-1)
    deep = whole.view(">u2").astype(np.uint16)  # (H, W, C)
    return deep[..., :1] if kind == 4 else deep


def _png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    chunks, place = [], 8
    while place + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        chunks.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + length]))
        place += 12 + length
    return chunks


def _grey_png(rows: NDArray[np.uint8], wide: int, high: int) -> bytes:
    """Wrap filtered rows (H, 1 + W) as an 8-bit gray PNG."""
    header = struct.pack(">IIBBBBB", wide, high, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 0)), (b"IEND", b""))
    return _PNG_SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def _check_array(stored: PixelArray, path: Path) -> PixelArray:
    """Raise an error unless the array holds integers or floats and has shape (H, W) or (H, W, C)."""
    if stored.dtype.kind not in "uif" or stored.dtype == np.int8:
        raise UserError(f"Image {path} holds {stored.dtype} values; save it as uint8, uint16 or float32.")
    if stored.ndim not in (2, 3) or stored.size == 0:
        raise UserError(f"Image {path} has shape {stored.shape}; expected (height, width) or (height, width, bands).")
    return stored
