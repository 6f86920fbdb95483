"""Saliency maps: for every training image, which of its pixels belong to something that stands out.

They come from a network of someone else's, run beforehand; SSUL takes salient background for classes yet to come.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.raster_files import decode_raster, file_bytes
from faircl.errors import UserError


@dataclass(frozen=True)
class SaliencyMaps:
    """A folder with one picture per image, ``{id}.png``, in which all but zero is salient."""

    folder: Path

    def path(self, id: str) -> Path:
        """Path of an image's map."""
        return self.folder / f"{id}.png"

    def read(self, id: str, size: tuple[int, ...]) -> NDArray[np.uint16]:
        """Salient pixels (H, W) of an image of a size (H, W), 1 or 0."""
        path = self.path(id)
        picture = decode_raster(file_bytes(path, "saliency map"), path, "saliency map")
        self._check_size(path, picture.size[::-1], size)
        numbers = np.asarray(picture)
        if picture.mode in ("LA", "PA", "RGBA"):  # how opaque a pixel is says nothing
            numbers = numbers[..., :-1]
        return (numbers if numbers.ndim == 2 else numbers.any(2)).astype(bool).astype(np.uint16)

    def check(self, sizes: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        """Raise an error unless there is a map for every image, given as id and size (H, W), and of that size.

        A map's bytes are checked, but not decoded.
        """
        sizes = list(sizes)
        if not self.folder.is_dir():
            what = "is not a folder" if self.folder.exists() else "does not exist"
            raise UserError(
                f"Saliency folder {self.folder} {what}; set data.saliency to a folder with one PNG per training image, "
                "or leave it unset."
            )
        missing = [id for id, _ in sizes if not os.path.isfile(self.path(id))]
        if missing:
            named = ", ".join(f"{id}.png" for id in missing[:3]) + (", ..." if len(missing) > 3 else "")
            raise UserError(
                f"Saliency folder {self.folder} lacks the maps of {len(missing)} of {len(sizes)} training images: "
                f"{named}; add them (one PNG per image, named by its id), or leave data.saliency unset."
            )
        for id, size in sizes:
            self._check_size(self.path(id), _stored_size(self.path(id)), size)

    @staticmethod
    def _check_size(path: Path, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if tuple(found) != tuple(expected):
            raise UserError(
                f"Saliency map {path} is {found[1]}x{found[0]} pixels, but its image is {expected[1]}x{expected[0]} "
                "(width x height); both must have the same size, so make the map again at the image's."
            )


def _stored_size(path: Path) -> tuple[int, int]:
    """Height and width that a file's header names."""
    try:
        with Pillow.open(path, formats=["PNG"]) as picture:
            size = picture.height, picture.width
            picture.verify()
            return size
    except Exception as error:  # broken files make Pillow raise nearly anything
        raise UserError(
            f"Saliency map {path} cannot be read: it is no PNG, is cut off, or may not be opened; make it again."
        ) from error
