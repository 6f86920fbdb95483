"""Mask files: decoding to class ids (H, W), and writing as PNG.

The ignore value is 255 in 8-bit masks and 65535 in 16-bit ones. Data with at most `MAX_UINT8_CLASSES` classes is read
as uint8 whatever the depth of its files, larger data as uint16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.raster_files import decode_raster, file_bytes
from faircl.errors import UserError
from faircl.labels import IGNORE, Mask, ignore_value

Colour = tuple[int, int, int]
Palette = NDArray[np.uint8]  # (N, 3), row k is the colour of id k

MAX_UINT8_CLASSES = 254
"""Most classes (background included) whose masks are uint8."""

IGNORE_8BIT = 255
"""IGNORE in 8-bit mask files."""

IGNORE_COLOUR: Colour = (224, 224, 192)
"""Colour of ignored pixels in painted masks, as in PASCAL VOC."""

_ROWS = 128  # rows that are painted at a time
_GRAY_STEP = {2: 85, 4: 17}  # factor by which Pillow scales gray PNGs of 2 and 4 bits to 0 … 255


class ColourTable:
    """Colour to class id, for RGB-coded masks.

    Example: ``ColourTable({(0, 0, 0): 0, (128, 0, 0): 1}, ignore_colour=(224, 224, 192))``.
    """

    def __init__(self, colours: Mapping[Colour, int], ignore_colour: Colour | None = None) -> None:
        small = max(colours.values(), default=0) < MAX_UINT8_CLASSES
        ids = dict(colours)
        if ignore_colour is not None:
            if ignore_colour in ids:
                raise UserError(
                    f"Colour {ignore_colour} is given both to class {ids[ignore_colour]} and to ignored pixels; "
                    "choose another colour for ignored pixels or leave it out."
                )
            ids[ignore_colour] = IGNORE
        pairs = sorted((_pack(np.array(colour, np.uint8)).item(), id) for colour, id in ids.items())
        self._codes = np.array([code for code, _ in pairs], np.uint32)
        table = np.array([id for _, id in pairs], np.uint16)
        self._ids: Mask = table.astype(np.uint8) if small else table  # the cast turns 65535 into 255

    def __bytes__(self) -> bytes:
        """Return the content of the table, for digests."""
        return self._codes.tobytes() + self._ids.tobytes()

    def lookup(self, rgb: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the ids (...) of colours (..., 3); -1 for unknown colours."""
        codes = _pack(rgb)
        if not len(self._codes):
            return np.full(codes.shape, -1)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        ids = np.where(self._ids == ignore_value(self._ids), IGNORE, self._ids.astype(np.int64))
        return np.where(self._codes[at] == codes, ids[at], -1)

    def decode(self, rgb: NDArray[np.uint8], source: str = "mask", listed_in: str = "the class list") -> Mask:
        """Return class ids (H, W) of an RGB-coded mask (H, W, 3); `source` and `listed_in` are for errors."""
        codes = _pack(rgb)
        if not len(self._codes):
            raise UserError(f"Mask {source} is coded in colours, but no class has one in {listed_in}; add them there.")
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        unknown = self._codes[at] != codes
        if unknown.any():
            raise UserError(_unknown_colour(rgb, codes, unknown, source, listed_in))
        return self._ids[at]


def decode_mask(path: Path, colours: ColourTable | None = None, listed_in: str = "the class list") -> Mask:
    """Return the ids (H, W) of a mask file as stored: uint8 with ignore value 255, or uint16 with 65535.

    Index files (1, 2, 4, 8, 16 bit) and palette files give their stored values; RGB files need `colours`.
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
    if image.mode in ("LA", "RGBA"):  # opaque alpha is dropped
        if pixels[..., -1].min() < 255:
            raise UserError(f"Mask {path} has transparent pixels; save it without an alpha channel.")
        pixels = pixels[..., 0] if image.mode == "LA" else pixels[..., :3]
    if image.mode in ("L", "P", "1") or (image.mode == "LA" and depth == 8):  # Pillow reduces 16-bit LA to 8 bits
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

    With at most `MAX_UINT8_CLASSES` classes, 255 is the ignore value in 16-bit files too.
    """
    small = num_classes <= MAX_UINT8_CLASSES
    if small == (mask.dtype == np.uint16):  # the depths of file and data differ: 255 is ignore either way
        mask = np.where(mask == IGNORE_8BIT, np.uint16(IGNORE), mask)
    # Ignore is the largest value of the type: adding one wraps it to 0, so that one maximum checks all ids.
    if int((mask + mask.dtype.type(1)).max()) > num_classes:
        values, counts = np.unique(mask[(mask >= num_classes) & (mask != ignore_value(mask))], return_counts=True)
        more = f" (and {len(values) - 1} more such values)" if len(values) > 1 else ""
        raise UserError(
            f"Mask {source} holds value {values[0]} in {counts[0]} pixels{more}, but {listed_in} has {num_classes} "
            f"classes, ids 0 to {num_classes - 1}; add the missing classes there, "
            f"or write {IGNORE_8BIT if small else IGNORE} for ignored pixels."
        )
    return mask.astype(np.uint8) if small else mask  # the cast turns 65535 into 255


def write_mask(path: Path, mask: Mask, palette: Palette | None = None) -> None:
    """Write ids (H, W) as a palette PNG (uint8) or as a 16-bit gray PNG without a palette (uint16)."""
    if mask.ndim != 2 or mask.dtype not in (np.uint8, np.uint16):
        raise ValueError(f"a mask is (H, W) uint8 or uint16, not {mask.shape} {mask.dtype}")
    image = Pillow.fromarray(mask)
    if mask.dtype == np.uint8:
        image.putpalette(full_palette(palette, 256).tobytes())
    try:
        image.save(path, format="PNG")
    except OSError as error:
        raise UserError(f"Cannot write mask {path}: {error.strerror or error}.") from error


def colour_mask(mask: Mask, palette: Palette | None = None) -> NDArray[np.uint8]:
    """Paint ids (H, W) as (H, W, 3) RGB; ids beyond `palette` take VOC's colours, ignored pixels `IGNORE_COLOUR`."""
    return full_palette(palette, ignore_value(mask) + 1)[mask]


def paint_over(
    image: NDArray[np.uint8], mask: Mask, palette: Palette, opacity: float, background: int | None
) -> NDArray[np.uint8]:
    """Paint ids (H, W) over an image (H, W, 3); pixels of the class ``background`` stay as they are."""
    painted = np.empty_like(image)
    colours = np.float32(opacity) * full_palette(palette, ignore_value(mask) + 1).astype(np.float32)
    weights = np.full(len(colours), 1 - opacity, np.float32)
    if background is not None:
        colours[background], weights[background] = 0, 1
    for top in range(0, len(mask), _ROWS):  # floats of a whole image would take four times its memory
        rows = slice(top, top + _ROWS)
        painted[rows] = np.rint(weights[mask[rows], None] * image[rows] + colours[mask[rows]])
    return painted


@cache
def voc_palette(size: int) -> Palette:
    """Return VOC's colours (size, 3): bits 0, 1, 2 of an id are the top bits of R, G, B, bits 3, 4, 5 the next."""
    ids = np.arange(size)[:, None] >> np.arange(3)  # (size, 3): the bits of each channel are now 0, 3, 6, ...
    bits = np.arange(8)
    palette: Palette = (((ids[..., None] >> 3 * bits) & 1) << (7 - bits)).sum(-1).astype(np.uint8)
    return palette


def colour_names(palette: Palette | None) -> list[str]:
    """Return the colours of a palette as "#rrggbb"; none without a palette."""
    return [] if palette is None else [f"#{bytes(colour).hex()}" for colour in palette]


def palette_of(names: Sequence[str]) -> Palette | None:
    """Return the palette of `colour_names`; None if there is no colour."""
    for name in names:
        if not re.fullmatch("#[0-9a-f]{6}", str(name)):
            raise UserError(f"Colour {name!r} is not of the form '#rrggbb'; the run folder is damaged.")
    colours = [list(bytes.fromhex(name[1:])) for name in names]
    return np.array(colours, np.uint8) if colours else None


def _pack(rgb: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return colours (..., 3) as 24-bit numbers (...)."""
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
        f"column {column}{more}, but no class has that colour in {listed_in}; add it there or make it the "
        "colour of ignored pixels."
    )


def palette_by_id(colours: Mapping[int, Colour]) -> Palette:
    """Return colours (N, 3) by class id; ids without one are black."""
    palette = np.zeros((max(colours) + 1, 3), np.uint8)
    palette[list(colours)] = list(colours.values())
    return palette


def full_palette(palette: Palette | None, size: int) -> Palette:
    """Return the colours (size, 3) of all ids: those given, VOC's for further ones, `IGNORE_COLOUR` for the last."""
    full = voc_palette(size).copy()
    full[-1] = IGNORE_COLOUR
    if palette is not None:
        full[: len(palette)] = palette[:size]
    return full
