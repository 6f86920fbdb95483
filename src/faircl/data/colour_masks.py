"""Masks coded in the colours of the classes, in whatever way the file stores colours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faircl.data.index_png import count_index_png
from faircl.data.mask_coding import MaskCoding, MaskCounts, count_ids
from faircl.data.masks import ColourTable, fit_mask
from faircl.data.raster_files import decode_raster
from faircl.errors import UserError
from faircl.labels import Mask

_COLOUR_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
_GRAYS = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)


def read_colours(data: bytes, path: Path) -> NDArray[np.uint8]:
    """Return the colours (H, W, 3) of a mask file's bytes; `path` is for errors."""
    image = decode_raster(data, path, "mask")
    if image.format == "JPEG":
        raise UserError(f"Mask {path} is a JPEG file, whose compression changes colours; save masks as PNG.")
    if image.mode not in _COLOUR_MODES:
        raise UserError(f"Mask {path} has Pillow mode {image.mode}; expected 8-bit colours: save it as an RGB PNG.")
    if image.mode in ("LA", "RGBA") and np.asarray(image)[..., -1].min() < 255:
        raise UserError(f"Mask {path} has transparent pixels; save it without an alpha channel.")
    return np.array(image.convert("RGB"))


@dataclass(frozen=True)
class ColourCoding(MaskCoding):
    """Masks whose values are always read as colours.

    PNG optimisers may store few colours as a palette or as gray values in any order, which are not class ids.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "fingerprint", f"{self.fingerprint}-painted")

    def decode(self, data: bytes, path: Path) -> Mask:
        """Return class ids (H, W) of a mask file's bytes, below `classes` or ignored; `path` is for errors."""
        mask = self._colour_table.decode(read_colours(data, path), str(path), self.listed_in)
        return fit_mask(mask, self.classes, str(path), self.listed_in)

    def count(self, data: bytes, path: Path) -> MaskCounts:
        """Count the classes of a mask file's bytes."""
        stored = count_index_png(data)
        if stored is not None:
            palette = _GRAYS if stored.palette is None else stored.palette
            ids = np.full(256, -1)
            ids[: len(palette)] = self._colour_table.lookup(palette)
            if (ids[stored.counts > 0] >= 0).all():
                # IGNORE is above all class ids, so it is counted in the last bin.
                counts = np.bincount(np.clip(ids, 0, self.classes), stored.counts, minlength=self.classes + 1)
                return MaskCounts(counts[:-1].astype(np.int64), int(counts[-1]), stored.size)
        return count_ids(self.decode(data, path), self.classes)  # an RGB picture, or one with an unknown colour

    @property
    def _colour_table(self) -> ColourTable:
        assert self.colours is not None, "ColourCoding needs colours"
        return self.colours
