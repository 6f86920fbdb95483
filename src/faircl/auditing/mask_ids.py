"""Class ids of label and prediction masks, as files store them or as arrays hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faircl.data.index_png import read_palette_png
from faircl.data.masks import ColourTable, decode_mask_bytes
from faircl.data.raster_files import decode_raster
from faircl.errors import UserError
from faircl.labels import IGNORE, Mask

_PNG = slice(1, 4), b"PNG"
_KIND, _GRAY = slice(24, 26), b"\x08\x00"  # place of a PNG's depth and colour type; 8-bit gray
_PALETTE = b"\x03"


def decode_ids(data: bytes, path: Path, colours: ColourTable | None, listed_in: str) -> Mask:
    """Return the ids (H, W) of a mask file's bytes, whatever their values; ``path`` is for errors.

    Index and palette files give their stored values. With ``colours``, RGB files and palettes whose used colours all
    are known are read by colour.
    """
    kind = data[_KIND] if data[_PNG[0]] == _PNG[1] else b""
    if kind == _GRAY:  # the most common masks, without the copies of `decode_mask_bytes`
        return np.asarray(decode_raster(data, path, "mask"))
    if kind.endswith(_PALETTE):
        if colours is not None:
            return _by_palette(data, path, colours)
        if (stored := read_palette_png(data)) is not None:
            return stored
    return decode_mask_bytes(data, path, colours, listed_in)


def array_ids(mask: Any, name: str) -> Mask:
    """Return whole numbers (H, W) of any array as ids; negative ones become the ignore value 65535."""
    values = np.asarray(mask)
    if values.ndim != 2 or not values.size or values.dtype.kind not in "iu":
        raise UserError(
            f"{name} has shape {values.shape} and type {values.dtype}; expected class ids (H, W), whole numbers."
        )
    if values.dtype in (np.uint8, np.uint16):
        return values
    if int(values.max()) > IGNORE:
        raise UserError(f"{name} holds the value {values.max()}; ids go from 0 to {IGNORE - 1}.")
    ids: NDArray[np.uint16] = np.where(values < 0, IGNORE, values).astype(np.uint16)
    return ids


def resized(mask: Mask, size: tuple[int, int]) -> Mask:
    """Return the ids (H, W) of a mask (h, w) at another size, each from the nearest pixel by its centre."""
    rows, columns = (
        ((np.arange(wanted) + 0.5) * found / wanted).astype(np.intp)
        for wanted, found in zip(size, mask.shape, strict=True)
    )
    nearest: Mask = mask[rows[:, None], columns]
    return nearest


def _by_palette(data: bytes, path: Path, colours: ColourTable) -> Mask:
    """Read a palette PNG by its colours, because editors may reorder a palette; by its values if one is unknown."""
    image = decode_raster(data, path, "mask")
    stored: NDArray[np.uint8] = np.asarray(image)
    palette = np.array(image.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
    ids = np.full(256, -1)
    ids[: len(palette)] = colours.lookup(palette)
    used = np.bincount(stored.ravel(), minlength=256) > 0
    return stored if (ids[used] < 0).any() else ids.astype(np.uint16)[stored]
