"""Mask files: every common coding to (H, W) class ids, and back to a palette PNG.

Void ("ignore") is 255 in 8-bit masks and 65535 in 16-bit ones. Data with at most `MAX_UINT8_CLASSES` classes is
read as uint8 whatever its files hold, larger data as uint16.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.errors import UserError
from faircl.labels import IGNORE, Mask, ignore_value

Colour = tuple[int, int, int]
Palette = NDArray[np.uint8]  # (N, 3), row k is the colour of id k

MAX_UINT8_CLASSES = 254
"""Most classes (background included) whose masks are uint8."""

IGNORE_8BIT = 255
"""How 8-bit files write IGNORE."""

IGNORE_COLOUR: Colour = (224, 224, 192)
"""Colour in which void is painted: the cream of PASCAL VOC."""

# Pillow turns TIFFs upright by their orientation tag when it loads them; these turn them back.
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
_GRAY_STEP = {2: 85, 4: 17}  # PNG bit depth: factor by which Pillow stretches low-depth gray to 0..255


class ColourTable:
    """Colour to class id, for RGB-coded masks.

    Example: ``ColourTable({(0, 0, 0): 0, (128, 0, 0): 1}, void_colour=(224, 224, 192))``.
    """

    def __init__(self, colours: Mapping[Colour, int], void_colour: Colour | None = None) -> None:
        small = max(colours.values(), default=0) < MAX_UINT8_CLASSES
        ids = dict(colours)
        if void_colour is not None:
            if void_colour in ids:
                raise UserError(
                    f"Colour {void_colour} is given both to class {ids[void_colour]} and to void; "
                    "choose another void colour or leave it out."
                )
            ids[void_colour] = IGNORE
        pairs = sorted((_pack(np.array(colour, np.uint8)).item(), id) for colour, id in ids.items())
        self._codes = np.array([code for code, _ in pairs], np.uint32)
        table = np.array([id for _, id in pairs], np.uint16)
        self._ids: Mask = table.astype(np.uint8) if small else table  # the cast takes 65535 to 255

    def __bytes__(self) -> bytes:
        """Everything the table says, for digests."""
        return self._codes.tobytes() + self._ids.tobytes()

    def lookup(self, rgb: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Ids (...) of colours (..., 3), void as IGNORE; -1 for colours that no class has."""
        codes = _pack(rgb)
        if not len(self._codes):
            return np.full(codes.shape, -1)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        ids = np.where(self._ids == ignore_value(self._ids), IGNORE, self._ids.astype(np.int64))
        return np.where(self._codes[at] == codes, ids[at], -1)

    def decode(self, rgb: NDArray[np.uint8], source: str = "mask", listed_in: str = "the class list") -> Mask:
        """Class ids (H, W) of an RGB-coded mask (H, W, 3); `source` and `listed_in` name things in errors."""
        codes = _pack(rgb)
        if not len(self._codes):
            raise UserError(f"Mask {source} is coded in colours, but no class has one in {listed_in}; add them there.")
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        unknown = self._codes[at] != codes
        if unknown.any():
            raise UserError(_unknown_colour(rgb, codes, unknown, source, listed_in))
        return self._ids[at]


def decode_mask(path: Path, colours: ColourTable | None = None, listed_in: str = "the class list") -> Mask:
    """Ids (H, W) exactly as the file holds them: uint8 with void 255, or uint16 with void 65535.

    Index files (1, 2, 4, 8, 16 bit) and palette files give their stored numbers; RGB files need `colours`.
    """
    return decode_mask_bytes(file_bytes(path, "mask"), path, colours, listed_in)


def decode_mask_bytes(
    data: bytes, path: Path, colours: ColourTable | None = None, listed_in: str = "the class list"
) -> Mask:
    """Decode a mask file's bytes as `decode_mask` does; `path` is for errors."""
    image = decode_raster(data, path, "mask")
    if image.format == "JPEG":
        raise UserError(f"Mask {path} is a JPEG file, whose compression changes class ids; save masks as PNG.")
    depth = data[24] if image.format == "PNG" else 8  # IHDR: signature 8, length 4, 'IHDR' 4, width 4, height 4
    pixels = np.array(image)
    if image.mode in ("LA", "RGBA"):  # opaque alpha says nothing, so it is dropped
        if pixels[..., -1].min() < 255:
            raise UserError(f"Mask {path} has transparent pixels; save it without an alpha channel.")
        pixels = pixels[..., 0] if image.mode == "LA" else pixels[..., :3]
    if image.mode in ("L", "P", "1") or (image.mode == "LA" and depth == 8):  # of 16-bit LA, Pillow keeps 8 bits
        ids = pixels.astype(np.uint8)
        return ids // _GRAY_STEP[depth] if image.mode == "L" and depth in _GRAY_STEP else ids
    if image.mode.startswith("I"):
        if pixels.min() < 0 or pixels.max() > IGNORE:
            raise UserError(
                f"Mask {path} holds values from {pixels.min()} to {pixels.max()}; ids must lie in 0 to {IGNORE}."
            )
        return pixels.astype(np.uint16)
    if image.mode not in ("RGB", "RGBA"):
        raise UserError(f"Mask {path} has Pillow mode {image.mode}; save it as an index, palette or RGB PNG.")
    if colours is None:
        raise UserError(
            f"Mask {path} is an RGB picture, but no class has a colour in {listed_in}; "
            "give each class its colour there ('name r g b') or save masks as index PNGs."
        )
    return colours.decode(pixels, str(path), listed_in)


def fit_mask(mask: Mask, num_classes: int, source: str = "mask", listed_in: str = "the class list") -> Mask:
    """Check ids (H, W) against the number of classes; return uint8, or uint16 above `MAX_UINT8_CLASSES`.

    Where uint8 is enough, 255 means void in 16-bit files too; where it is not, it does in 8-bit files only.
    """
    small = num_classes <= MAX_UINT8_CLASSES
    if small == (mask.dtype == np.uint16):  # the file's depth is not the data's: its 255 is void in both cases
        mask = np.where(mask == IGNORE_8BIT, np.uint16(IGNORE), mask)
    # Void is the largest value of the type, so adding one wraps it to 0 and a single maximum checks all the rest.
    if int((mask + mask.dtype.type(1)).max()) > num_classes:
        values, counts = np.unique(mask[(mask >= num_classes) & (mask != ignore_value(mask))], return_counts=True)
        more = f" (and {len(values) - 1} more such values)" if len(values) > 1 else ""
        raise UserError(
            f"Mask {source} holds value {values[0]} in {counts[0]} pixels{more}, but {listed_in} has {num_classes} "
            f"classes, ids 0 to {num_classes - 1}; add the missing classes there, "
            f"or write {IGNORE_8BIT if small else IGNORE} for void."
        )
    return mask.astype(np.uint8) if small else mask  # the cast takes 65535 to 255


def read_mask(
    path: Path, num_classes: int, colours: ColourTable | None = None, listed_in: str = "the class list"
) -> Mask:
    """Decode a mask file and fit it to the number of classes: (H, W) ids below `num_classes`, or void."""
    return fit_mask(decode_mask(path, colours, listed_in), num_classes, str(path), listed_in)


def write_mask(path: Path, mask: Mask, palette: Palette | None = None) -> None:
    """Write ids (H, W): a palette PNG for uint8, a 16-bit index PNG (which can carry no palette) for uint16."""
    if mask.ndim != 2 or mask.dtype not in (np.uint8, np.uint16):
        raise ValueError(f"a mask is (H, W) uint8 or uint16, not {mask.shape} {mask.dtype}")
    image = Pillow.fromarray(mask)
    if mask.dtype == np.uint8:
        image.putpalette(_full_palette(palette, 256).tobytes())
    try:
        image.save(path, format="PNG")
    except OSError as error:
        raise UserError(f"Cannot write mask {path}: {error.strerror or error}.") from error


def colour_mask(mask: Mask, palette: Palette | None = None) -> NDArray[np.uint8]:
    """Paint ids (H, W) as (H, W, 3) RGB; ids beyond `palette` take default colours, void `VOID_COLOUR`."""
    return _full_palette(palette, ignore_value(mask) + 1)[mask]


@cache
def voc_palette(size: int) -> Palette:
    """PASCAL VOC's colours (size, 3): bits 0, 1, 2 of the id are the top bits of R, G, B, bits 3, 4, 5 the next."""
    ids = np.arange(size)[:, None] >> np.arange(3)  # (size, 3): the bits of each channel are now 0, 3, 6, ...
    bits = np.arange(8)
    palette: Palette = (((ids[..., None] >> 3 * bits) & 1) << (7 - bits)).sum(-1).astype(np.uint8)
    return palette


def open_raster(path: Path, kind: str) -> Pillow.Image:
    """Load a picture as stored, never rotated; whatever is wrong with the file is a `UserError` naming `kind`."""
    return decode_raster(file_bytes(path, kind), path, kind)


def file_bytes(path: Path, kind: str) -> bytes:
    """Read a file whole; whatever keeps it from being read is a `UserError` naming `kind`."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"{kind.capitalize()} {path} is not a regular file; replace it by one.")
            return file.read()
    except IsADirectoryError:
        raise UserError(f"{kind.capitalize()} {path} is not a regular file; replace it by one.") from None
    except OSError as error:
        hint = "check its permissions" if isinstance(error, PermissionError) else "check that it exists"
        raise UserError(f"Cannot read {kind} {path}: {error.strerror or error}; {hint}.") from error


def file_lines(path: Path, kind: str) -> list[str]:
    """Lines of a UTF-8 text, spaces around them dropped; whatever keeps it from being read is a `UserError`."""
    try:
        text = file_bytes(path, kind).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"Cannot read {kind} {path}: it is not UTF-8 text; save it as such.") from error
    return [line.strip() for line in text.split("\n")]


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a FIFO would block for ever


def decode_raster(data: bytes, path: Path, kind: str) -> Pillow.Image:
    """Decode a picture's bytes as stored, never rotated."""
    try:
        image = Pillow.open(BytesIO(data))
        turn = _UNDO_ORIENTATION.get(image.getexif().get(_ORIENTATION_TAG, 1)) if image.format == "TIFF" else None
        image.load()
    except Exception as error:  # broken files make Pillow's decoders raise nearly anything
        found = "an empty file" if not data else f"not a complete picture ({type(error).__name__})"
        if isinstance(error, Pillow.DecompressionBombError):
            found = "too large for Pillow (raise PIL.Image.MAX_IMAGE_PIXELS if you trust it)"
        raise UserError(
            f"{kind.capitalize()} {path} cannot be decoded: it is {found}; copy or export it again."
        ) from error
    if turn is None:
        return image
    turned = image.transpose(turn)
    turned.format = image.format  # lost by transpose
    return turned


def _pack(rgb: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """(..., 3) colours to (...) 24-bit numbers."""
    red, green, blue = (rgb[..., channel].astype(np.uint32) for channel in range(3))
    return red << np.uint32(16) | green << np.uint32(8) | blue


def _unknown_colour(
    rgb: NDArray[np.uint8], codes: NDArray[np.uint32], unknown: NDArray[np.bool_], source: str, listed_in: str
) -> str:
    row, column = np.argwhere(unknown)[0].tolist()
    count = int((codes == codes[row, column]).sum())
    others = len(np.unique(codes[unknown])) - 1
    more = f" (and {others} more unknown colours: was it resized with interpolation?)" if others else ""
    return (
        f"Mask {source} has colour {tuple(rgb[row, column].tolist())} in {count} pixels, the first at row {row}, "
        f"column {column}{more}, but no class has that colour in {listed_in}; add it there or make it the void colour."
    )


def _full_palette(palette: Palette | None, size: int) -> Palette:
    full = voc_palette(size).copy()
    full[-1] = IGNORE_COLOUR
    if palette is not None:
        full[: len(palette)] = palette[:size]
    return full
