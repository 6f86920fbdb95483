"""Pictures as trees hold them, and some that no library writes."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def photo(path: Path, mask: np.ndarray, **options: Any) -> Path:
    """Save an image of a mask's size; no two names get the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(zlib.crc32(os.fsencode(path.name)))
    Image.fromarray(rng.integers(0, 256, (*mask.shape, 3), np.uint8)).save(path, **options)
    return path


def painted(mask: np.ndarray, colours: Sequence[tuple[int, int, int]], ignored: tuple[int, int, int]) -> np.ndarray:
    table = np.zeros((256, 3), np.uint8)
    table[: len(colours)] = colours
    table[255] = ignored
    return table[mask]


def save_rgb(path: Path, rgb: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rgb).save(path)
    return path


def png(
    mask: np.ndarray,
    depth: int = 8,
    interlaced: bool = False,
    parts: int = 1,
    level: int = 9,
    size: tuple[int, int] | None = None,
) -> bytes:
    """Grey PNG of 1 to 8 bits, row after row or in Adam7's seven passes, its data in one chunk or several.

    `size`: height and width that the header claims; `level`: 0 stores the rows as they are.
    """
    places = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    passes = [mask[y::dy, x::dx] for y, x, dy, dx in places] if interlaced else [mask]
    rows = b"".join(b"\0" + _packed(row, depth) for part in passes if part.size for row in part)
    data = zlib.compress(rows, level)
    cuts = [len(data) * part // parts for part in range(parts + 1)]
    high, wide = size or mask.shape
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", wide, high, depth, 0, 0, 0, interlaced))]
    chunks += [(b"IDAT", data[start:end]) for start, end in pairwise(cuts)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in [*chunks, (b"IEND", b"")]
    )


def _packed(row: np.ndarray, depth: int) -> bytes:
    return np.packbits(np.unpackbits(row[:, None], axis=1)[:, 8 - depth :].ravel()).tobytes()
