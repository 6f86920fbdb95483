"""Reading files and decoding raster images; every failure is a `UserError` that names the file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from PIL import Image as Pillow

from faircl.errors import UserError

# Pillow rotates TIFFs by their orientation tag when it loads them; these operations undo that.
_UNDO_ORIENTATION = {
    2: Pillow.Transpose.FLIP_LEFT_RIGHT,
    3: Pillow.Transpose.ROTATE_180,
    4: Pillow.Transpose.FLIP_TOP_BOTTOM,
    5: Pillow.Transpose.TRANSPOSE,
    6: Pillow.Transpose.ROTATE_90,
    7: Pillow.Transpose.TRANSVERSE,
    8: Pillow.Transpose.ROTATE_270,
}
_ORIENTATION_TAG = 0x0112


def file_bytes(path: Path, kind: str) -> bytes:
    """Return the content of a file; errors call it a `kind` ("mask", "image")."""
    return _read(path, kind, lambda file: file.read())


def file_samples(path: Path, kind: str, size: int) -> bytes:
    """Return the length of a file and `size` bytes of its beginning, middle and end; errors as of `file_bytes`."""

    def read(file: BinaryIO) -> bytes:
        length = os.fstat(file.fileno()).st_size
        parts = [b"%d:" % length]
        for start in (0, (length - size) // 2, length - size):
            file.seek(max(start, 0))
            parts.append(file.read(size))
        return b"".join(parts)

    return _read(path, kind, read)


def _read(path: Path, kind: str, read: Callable[[BinaryIO], bytes]) -> bytes:
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"{kind.capitalize()} {path} is not a regular file; replace it by one.")
            return read(file)
    except IsADirectoryError:
        raise UserError(f"{kind.capitalize()} {path} is not a regular file; replace it by one.") from None
    except OSError as error:
        hint = "check its permissions" if isinstance(error, PermissionError) else "check that it exists"
        raise UserError(f"Cannot read {kind} {path}: {error.strerror or error}; {hint}.") from error


def file_lines(path: Path, kind: str) -> list[str]:
    """Return the lines of a UTF-8 text file, stripped."""
    try:
        text = file_bytes(path, kind).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"Cannot read {kind} {path}: it is not UTF-8 text; save it as such.") from error
    return [line.strip() for line in text.split("\n")]


def open_raster(path: Path, kind: str) -> Pillow.Image:
    """Decode an image file as stored, without rotation."""
    return decode_raster(file_bytes(path, kind), path, kind)


def decode_raster(data: bytes, path: Path, kind: str) -> Pillow.Image:
    """Decode the bytes of an image file as stored, without rotation; `path` and `kind` are for errors."""
    try:
        image = Pillow.open(BytesIO(data))
        turn = _UNDO_ORIENTATION.get(image.getexif().get(_ORIENTATION_TAG, 1)) if image.format == "TIFF" else None
        image.load()
    except Exception as error:  # damaged files make Pillow's decoders raise many kinds of errors
        found = "an empty file" if not data else f"not a complete picture ({type(error).__name__})"
        if isinstance(error, Pillow.DecompressionBombError):
            found = "too large for Pillow (raise PIL.Image.MAX_IMAGE_PIXELS if you trust it)"
        raise UserError(
            f"{kind.capitalize()} {path} cannot be decoded: it is {found}; copy or export it again."
        ) from error
    if turn is None:
        return image
    turned = image.transpose(turn)
    turned.format = image.format  # transpose drops it
    return turned


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a FIFO would block for ever
