"""A short way through the commonest masks: 8-bit index PNGs whose rows are stored as they are.

Their decompressed bytes are the rows, each behind a zero that says "no filter". Palette PNGs are written so by nearly
everything. Any other file, a damaged one among them, is left to Pillow: torchvision, no faster with grey PNGs once
their length is checked, crashes where rows are missing.
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


class MissingRowsError(Exception):
    """A file holds fewer rows than its header says. Pillow would fill them with zeros and say nothing."""


class IndexPngCounts(NamedTuple):
    """How often each value occurs (256,) int64, height and width, and the palette (N, 3) uint8, if it has one."""

    counts: NDArray[np.int64]
    size: tuple[int, int]
    palette: NDArray[np.uint8] | None


class _IndexPng(NamedTuple):
    """An 8-bit index file that is not too large, by its header."""

    high: int
    wide: int
    kind: int
    chunks: dict[bytes, bytes]


def count_index_png(data: bytes) -> IndexPngCounts | None:
    """Count the values of a PNG's bytes; None for what takes the long way."""
    if (file := _index(data)) is None or (rows := _plain_rows(file)) is None:
        return None
    palette = np.frombuffer(file.chunks[b"PLTE"], np.uint8).reshape(-1, 3) if file.kind == _PALETTE else None
    counts = _count(rows.reshape(-1))
    counts[0] -= file.high  # the zeros before the rows
    return IndexPngCounts(counts, (file.high, file.wide), palette)


def read_palette_png(data: bytes) -> NDArray[np.uint8] | None:
    """Return the values (H, W) of a palette PNG's bytes; None for what takes the long way, grey ones among them.

    Rows of grey are filtered as a rule, which is known only when they are decompressed, and then twice.
    """
    if (file := _index(data)) is None or file.kind != _PALETTE:
        return None
    try:
        rows = _plain_rows(file)
    except MissingRowsError:
        return None
    return None if rows is None else rows[:, 1:].copy()


def _index(data: bytes) -> _IndexPng | None:
    try:
        chunks = _chunks(data)
        wide, high, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        size, packed = high * (wide + 1), chunks[b"IDAT"]
    except (KeyError, struct.error):
        return None
    # A damaged or hostile file may ask for any size; Pillow knows what is too much.
    if size > min(_LARGEST, Pillow.MAX_IMAGE_PIXELS or _LARGEST) or len(packed) > _LARGEST // _MOST_INFLATED:
        return None
    if depth != 8 or kind not in (_GREY, _PALETTE) or interlaced or high == 0 or wide == 0:
        return None
    if kind == _PALETTE and (len(chunks.get(b"PLTE", b"?")) % 3):
        return None
    return _IndexPng(high, wide, kind, chunks)


def _plain_rows(file: _IndexPng) -> NDArray[np.uint8] | None:
    """Return the rows (H, 1 + W), each behind its zero; None where one is filtered."""
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
