"""Bytes of image files, good and bad ones."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image


def picture(width: int = 40, height: int = 30) -> np.ndarray:
    """An image (H, W, 3) that is red on its left half and has a gradient in green."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = 255
    pixels[..., 1] = np.linspace(0, 255, height, dtype=np.uint8)[:, None]
    return pixels


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def png_bomb(side: int, complete: bool = False) -> bytes:
    """A small PNG of side × side black pixels of one bit; unless complete, most of its rows are missing."""
    row = b"\0" * (1 + (side + 7) // 8)
    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(row) for _ in range(side if complete else 1)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
