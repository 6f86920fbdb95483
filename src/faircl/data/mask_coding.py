"""Coding of a data set's masks: from file bytes to class ids, or directly to pixel counts.

Most masks are 8-bit index or palette pictures. One table of 256 entries decodes their values, and one histogram counts
them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.index_png import IndexPngCounts, MissingRowsError, count_index_png, read_palette_png
from faircl.data.masks import IGNORE_8BIT, MAX_UINT8_CLASSES, ColourTable, Palette, decode_mask_bytes, fit_mask
from faircl.data.raster_files import decode_raster
from faircl.errors import UserError
from faircl.labels import IGNORE, Mask, ignore_value

UNKNOWN = 65533
"""Entry of a value table for values that must not occur in a mask."""

_PNG_DEPTH = 24  # offset of the bit depth in a PNG file

Values = NDArray[np.uint16]  # stored value to id, IGNORE or UNKNOWN


class MaskCounts(NamedTuple):
    """Pixels of every class (K,) int64, ignored pixels, and the mask's height and width."""

    pixels: NDArray[np.int64]
    ignored: int
    size: tuple[int, int]


@dataclass(frozen=True)
class MaskCoding:
    """Meaning of the values and colours in a data set's masks.

    `classes`: number of classes, ids 0 to `classes` − 1. `colours`: for masks coded in colours. `values` (N,): stored
    value to id where the two differ (Cityscapes' labelIds); larger values are unknown. `has_ignore`: whether 255 is
    the ignore value. `hint`: what to do about unknown values, for errors. `listed_in`: name of the class list in
    errors.
    """

    classes: int
    colours: ColourTable | None = None
    values: Values | None = None
    has_ignore: bool = True
    hint: str = ""
    listed_in: str = "the class list"
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"1/{self.classes}/{self.has_ignore}/".encode())
        digest.update(b"" if self.colours is None else bytes(self.colours))
        digest.update(b"" if self.values is None else self.values.astype("<u2").tobytes())
        object.__setattr__(self, "fingerprint", digest.hexdigest())

    def decode(self, data: bytes, path: Path) -> Mask:
        """Return class ids (H, W) of a mask file's bytes, below `classes` or ignored; `path` is for errors."""
        stored = None if self.colours is not None else read_palette_png(data)
        if stored is not None and (ids := self._direct_ids(stored)) is not None:
            return ids
        image = decode_raster(data, path, "mask")
        if _is_index(image, data):
            if image.mode == "L" or self.colours is None:
                stored = np.frombuffer(bytearray(image.tobytes()), np.uint8).reshape(image.height, image.width)
                if (ids := self._direct_ids(stored)) is not None:
                    return ids
            table = self._id_table(np.array(image.histogram()), _palette(image), path)
            # The cast turns IGNORE into 255.
            small = self.classes <= MAX_UINT8_CLASSES
            mask: Mask = (table.astype(np.uint8) if small else table)[np.array(image)]
            return mask
        if self.values is not None and image.mode in ("RGB", "RGBA"):
            raise UserError(
                f"Mask {path} is a colour picture; expected {self.listed_in} as numbers: it is likely the preview that "
                "lies beside the masks."
            )
        mask = decode_mask_bytes(data, path, self.colours, self.listed_in)
        if self.values is None and self.has_ignore:
            return fit_mask(mask, self.classes, str(path), self.listed_in)
        counts = np.bincount(mask.ravel(), minlength=65536 if mask.dtype == np.uint16 else 256)
        table = self._checked_table(counts, path)
        return table.astype(np.uint8)[mask] if self.classes <= MAX_UINT8_CLASSES else table[mask]

    def _direct_ids(self, values: NDArray[np.uint8]) -> Mask | None:
        """Return the ids of 8-bit values (H, W) without regard to a palette; None if one of them is unknown."""
        if self.classes > UNKNOWN & 0xFF:
            return None
        if self.values is None and self.has_ignore:  # adding one wraps 255 to 0, so that one maximum checks all
            return values if int((values + np.uint8(1)).max(initial=0)) <= self.classes else None
        # bytes.translate takes a third of the time of a histogram and a lookup; the low byte of UNKNOWN is not an id.
        ids = np.frombuffer(bytearray(values).translate(self._bytes), np.uint8)
        return None if (ids == UNKNOWN & 0xFF).any() else ids.reshape(values.shape)

    def count(self, data: bytes, path: Path) -> MaskCounts:
        """Count the classes of a mask file's bytes."""
        try:
            stored = count_index_png(data)
        except MissingRowsError:
            raise UserError(
                f"Mask {path} cannot be decoded: it holds fewer rows than its header says; copy or export it again."
            ) from None
        if stored is None:
            image = decode_raster(data, path, "mask")
            if not _is_index(image, data):
                return count_ids(self.decode(data, path), self.classes)
            stored = IndexPngCounts(np.array(image.histogram()), (image.height, image.width), _palette(image))
        table = self._id_table(stored.counts, stored.palette, path)
        # IGNORE is counted in the last bin; UNKNOWN does not occur.
        places = np.minimum(table, self.classes)
        counts = np.bincount(places, stored.counts, minlength=self.classes + 1).astype(np.int64)
        return MaskCounts(counts[:-1], int(counts[-1]), stored.size)

    def _id_table(self, counts: NDArray[np.int64], palette: Palette | None, path: Path) -> Values:
        """Return the id of each of the 256 values of an 8-bit picture; raise an error if an unknown value occurs.

        A palette picture whose used colours are all known is read by its colours, because editors may reorder a
        palette. Any other palette is ignored and values are ids.
        """
        if palette is not None and self.colours is not None:
            by_colour = self._by_colour(counts, palette, self.colours)
            if by_colour is not None:
                return by_colour
        return self._checked_table(counts, path)

    def _by_colour(self, counts: NDArray[np.int64], palette: Palette, colours: ColourTable) -> Values | None:
        ids = np.full(256, -1)
        ids[: len(palette)] = colours.lookup(palette)
        if (ids[counts > 0] < 0).any():
            return None
        table: Values = np.maximum(ids, 0).astype(np.uint16)
        return table

    def _checked_table(self, counts: NDArray[np.int64], path: Path) -> Values:
        """Return the id of every stored value; raise an error if an unknown value occurs."""
        table = self._byte_table if len(counts) == 256 else self._table(len(counts))
        if counts[table == UNKNOWN].any():
            unknown = np.flatnonzero((table == UNKNOWN) & (counts > 0))
            more = f" (and {len(unknown) - 1} more such values)" if len(unknown) > 1 else ""
            ignore = f", or write {IGNORE_8BIT} for ignored pixels" if self.has_ignore else ""
            raise UserError(
                f"Mask {path} holds value {unknown[0]} in {counts[unknown[0]]} pixels{more}, but {self.listed_in} has "
                f"{self.classes} classes{self._range()}; "
                + (self.hint if self.hint else f"add the missing classes there{ignore}.")
            )
        return table

    def _range(self) -> str:
        return f", ids 0 to {self.classes - 1}" if self.values is None else ""

    @cached_property
    def _byte_table(self) -> Values:
        return self._table(256)

    @cached_property
    def _bytes(self) -> bytes:
        """Low bytes of `_byte_table`; IGNORE becomes 255."""
        return self._byte_table.astype(np.uint8).tobytes()

    def _table(self, size: int) -> Values:
        table = np.full(size, UNKNOWN, np.uint16)
        own = np.arange(min(self.classes, size), dtype=np.uint16) if self.values is None else self.values[:size]
        table[: len(own)] = own
        if self.has_ignore:  # the largest value, and 255 unless it is a class id
            table[-1] = IGNORE
            if self.classes <= IGNORE_8BIT:
                table[IGNORE_8BIT] = IGNORE
        return table


def count_ids(mask: Mask, classes: int) -> MaskCounts:
    """Count the classes of decoded ids (H, W)."""
    counts = np.bincount(mask.ravel(), minlength=classes + 1)
    return MaskCounts(
        counts[:classes].astype(np.int64), int((mask == ignore_value(mask)).sum()), (mask.shape[0], mask.shape[1])
    )


def _palette(image: Pillow.Image) -> Palette | None:
    if image.mode != "P":
        return None
    return np.array(image.getpalette("RGB") or [], np.uint8).reshape(-1, 3)[:256]


def _is_index(image: Pillow.Image, data: bytes) -> bool:
    """Whether the stored bytes of a picture are its values: 8-bit gray or palette."""
    if image.format == "JPEG" or image.mode not in ("L", "P"):
        return False
    return image.mode == "P" or image.format != "PNG" or data[_PNG_DEPTH] == 8
