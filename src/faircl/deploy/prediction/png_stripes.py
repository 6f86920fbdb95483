"""Writing PNG files stripe by stripe, so that a large picture need not be in memory; Pillow writes whole ones only."""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from faircl.data.masks import Palette

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _RGB, _PALETTE = 0, 2, 3
_NONE, _UP = 0, 2  # filters of rows
_FAST, _USUAL = 1, 6  # levels of zlib

Rows = NDArray[np.uint8] | NDArray[np.uint16]


class PngStripes:
    """A PNG file in the making: stripes of rows from top to bottom, then `close`.

    Rows are (h, W) uint8, gray or with a palette (N, 3), (h, W) uint16 or (h, W, 3) uint8, all of one kind. Colour and
    gray rows without a palette are stored as differences from the row above (PNG's filter "up"), which compress better.
    """

    def __init__(self, file: BinaryIO, width: int, height: int, palette: Palette | None = None) -> None:
        self.file, self.width, self.height, self.palette = file, width, height, palette
        self._above: NDArray[np.uint8] | None = None
        self._packer = zlib.compressobj(_FAST if palette is None else _USUAL)
        self._written = 0

    def write(self, rows: Rows) -> None:
        """Append rows."""
        if self._above is None:
            self._begin(rows)
        stored = rows.astype(">u2").view(np.uint8) if rows.dtype == np.uint16 else rows.view(np.uint8)
        lines = np.ascontiguousarray(stored).reshape(len(rows), -1)
        differ = self.palette is None
        packed = np.empty((len(rows), 1 + lines.shape[1]), np.uint8)
        packed[:, 0] = _UP if differ else _NONE
        packed[:, 1:] = lines
        if differ:
            packed[1:, 1:] -= lines[:-1]
            packed[:1, 1:] -= self._above if self._above is not None else 0
        self._above = lines[-1:].copy()
        self._written += len(rows)
        self._chunk(b"IDAT", self._packer.compress(packed.data))

    def close(self) -> None:
        """Write the end; the file itself stays open."""
        if self._written != self.height:
            raise ValueError(f"{self._written} of {self.height} rows were written")
        self._chunk(b"IDAT", self._packer.flush())
        self._chunk(b"IEND", b"")

    def _begin(self, rows: Rows) -> None:
        kind = _RGB if rows.ndim == 3 else _GRAY if self.palette is None else _PALETTE
        self.file.write(_SIGNATURE)
        depth = 8 * rows.dtype.itemsize
        self._chunk(b"IHDR", struct.pack(">IIBBBBB", self.width, self.height, depth, kind, 0, 0, 0))
        if self.palette is not None:
            self._chunk(b"PLTE", self.palette.tobytes())

    def _chunk(self, name: bytes, body: bytes) -> None:
        if name != b"IDAT" or body:
            self.file.write(struct.pack(">I", len(body)) + name)
            self.file.write(body)
            self.file.write(struct.pack(">I", zlib.crc32(body, zlib.crc32(name))))
