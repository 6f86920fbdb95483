"""A short way through the commonest masks: 8-bit index PNGs whose rows are stored as they are.

Counting such a file needs no picture: its decompressed bytes are the rows, each behind a zero that says "no filter".
Palette PNGs are written so by nearly everything. Any other file, a damaged one among them, is left to Pillow.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _PALETTE = 0, 3
_LARGEST = 1 << 28  # bytes
_MOST_INFLATED = 1032  # times that deflate can shrink anything


class MissingRows(Exception):
    """A file holds fewer rows than its header says. Pillow would fill them with zeros and say nothing."""


class IndexPng(NamedTuple):
    """How often each value occurs (256,) int64, height and width, and the palette (N, 3) uint8, if it has one."""

    counts: NDArray[np.int64]
    size: tuple[int, int]
    palette: NDArray[np.uint8] | None


def count_index_png(data: bytes) -> IndexPng | None:
    """Count the values of a PNG's bytes; None for what takes the long way."""
    try:
        chunks = _chunks(data)
        wide, high, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        size, packed = high * (wide + 1), chunks[b"IDAT"]
        # A damaged or hostile file may ask for any size; Pillow knows what is too much.
        if size > min(_LARGEST, Pillow.MAX_IMAGE_PIXELS or _LARGEST) or len(packed) > _LARGEST // _MOST_INFLATED:
            return None
        if depth != 8 or kind not in (_GREY, _PALETTE) or interlaced or size == 0:
            return None
        inflated = zlib.decompress(packed, bufsize=size)
        if len(inflated) < size:
            raise MissingRows
        stored = np.frombuffer(inflated, np.uint8).reshape(high, wide + 1)
        palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3) if kind == _PALETTE else None
    except (KeyError, ValueError, struct.error, zlib.error):
        return None
    if wide == 0 or stored[:, 0].any():
        return None
    counts = _count(stored.reshape(-1))
    counts[0] -= high  # the zeros before the rows
    return IndexPng(counts, (high, wide), palette)


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """Return the chunks by name, the parts of IDAT joined; a KeyError for a file that is not whole."""
    if data[:8] != _SIGNATURE or data[-8:-4] != b"IEND":
        raise KeyError
    chunks: dict[bytes, bytes] = {}
    place = 8
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        (check,) = struct.unpack_from(">I", data, place + 8 + length)
        if zlib.crc32(body, zlib.crc32(name)) != check:
            raise KeyError
        chunks[name] = chunks[name] + body if name == b"IDAT" and name in chunks else body
        place += 12 + length
    return chunks


def _count(values: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Histogram (256,) by runs of equal neighbours: masks are mostly such runs, and bytes compare many at a time."""
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)
    lengths = np.diff(ends, prepend=-1)
    return np.bincount(values[ends], lengths, minlength=256).astype(np.int64)
