"""Fast decoding of the most common masks: 8-bit index PNGs with unfiltered rows.

The decompressed bytes of such a file are its rows, each after a filter byte of zero. Nearly all software writes palette
PNGs this way. All other files, damaged ones included, are left to Pillow. torchvision is not used: it crashes if rows
are missing, and checking their length makes it as slow.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _PALETTE = 0, 3
_MAX_BYTES = 1 << 28
_MAX_RATIO = 1032  # best compression ratio of deflate


class MissingRowsError(Exception):
    """A file holds fewer rows than its header says, which Pillow would silently fill with zeros."""


class IndexPngCounts(NamedTuple):
    """Histogram of the values (256,) int64, height and width, and the palette (N, 3) uint8 or None."""

    counts: NDArray[np.int64]
    size: tuple[int, int]
    palette: NDArray[np.uint8] | None


class _IndexPng(NamedTuple):
    """Header and chunks of an 8-bit index PNG."""

    high: int
    wide: int
    kind: int
    chunks: dict[bytes, bytes]


def count_index_png(data: bytes) -> IndexPngCounts | None:
    """Count the values of a PNG's bytes; None if Pillow has to decode it."""
    if (file := _parse_index_png(data)) is None or (rows := _unfiltered_rows(file)) is None:
        return None
    palette = np.frombuffer(file.chunks[b"PLTE"], np.uint8).reshape(-1, 3) if file.kind == _PALETTE else None
    counts = _count(rows.reshape(-1))
    counts[0] -= file.high  # the filter bytes
    return IndexPngCounts(counts, (file.high, file.wide), palette)


def read_palette_png(data: bytes) -> NDArray[np.uint8] | None:
    """Return the values (H, W) of a palette PNG's bytes; None if Pillow has to decode it.

    Gray PNGs are not tried: most have filtered rows, which is known only after decompressing them.
    """
    if (file := _parse_index_png(data)) is None or file.kind != _PALETTE:
        return None
    try:
        rows = _unfiltered_rows(file)
    except MissingRowsError:
        return None
    return None if rows is None else rows[:, 1:].copy()


def _parse_index_png(data: bytes) -> _IndexPng | None:
    try:
        chunks = _chunks(data)
        wide, high, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        size, packed = high * (wide + 1), chunks[b"IDAT"]
    except (KeyError, struct.error):
        return None
    # A damaged or malicious header may name any size; Pillow raises an error for too large ones.
    if size > min(_MAX_BYTES, Pillow.MAX_IMAGE_PIXELS or _MAX_BYTES) or len(packed) > _MAX_BYTES // _MAX_RATIO:
        return None
    if depth != 8 or kind not in (_GRAY, _PALETTE) or interlaced or high == 0 or wide == 0:
        return None
    if kind == _PALETTE and (len(chunks.get(b"PLTE", b"?")) % 3):
        return None
    return _IndexPng(high, wide, kind, chunks)


def _unfiltered_rows(file: _IndexPng) -> NDArray[np.uint8] | None:
    """Return the rows (H, 1 + W) with their filter bytes; None if a row is filtered."""
    size = file.high * (file.wide + 1)
    try:
        inflated = zlib.decompress(file.chunks[b"IDAT"], bufsize=size)
        if len(inflated) < size:
            raise MissingRowsError
        rows = np.frombuffer(inflated, np.uint8).reshape(file.high, file.wide + 1)
    except (ValueError, zlib.error):
        return None
    return None if rows[:, 0].any() else rows


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """Return the chunks by name, IDAT chunks joined; raise KeyError for an incomplete or damaged file."""
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
    """Return the histogram (256,), counted by runs of equal values, of which masks mostly consist."""
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)
    lengths = np.diff(ends, prepend=-1)
    return np.bincount(values[ends], lengths, minlength=256).astype(np.int64)
