"""The gallery of a page: photos as JPEG, masks as compressed indices, small enough for one file."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.masks import decode_mask
from faircl.data.raster_files import open_raster
from faircl.errors import UserError
from faircl.labels import Mask, ignore_value
from faircl.report.class_colours import Paint, paints
from faircl.runs.gallery import GalleryImage
from faircl.runs.run import Run

LARGEST = 768
"""Longer side of a picture in px; larger ones are shrunk."""
ROOM = 11_000_000
"""Bytes that all pictures may take; if they take more, all are shrunk."""
TRUTH = "truth"


class Picture(NamedTuple):
    """A gallery image in a page: file name, why it was chosen, photo as data URI, masks by "truth" or step.

    A mask is base64 of zlib-compressed positions among the paints, row by row, of ``width`` × ``height`` pixels.
    """

    id: str
    reasons: tuple[str, ...]
    width: int
    height: int
    photo: str
    masks: dict[str, str]

    @property
    def bytes(self) -> int:
        """Its size in the page."""
        return len(self.photo) + sum(map(len, self.masks.values()))


class GalleryFiles(NamedTuple):
    """Pictures, the classes that masks refer to, and the bytes of one position: 1, or 2 for more than 255 classes.

    ``unread`` says why others could not be read.
    """

    pictures: list[Picture]
    paints: list[Paint]
    depth: int
    unread: list[str]

    @property
    def reasons(self) -> list[str]:
        """Every reason for a choice, once: "worst class: sign, IoU 12.0"."""
        return list(dict.fromkeys(reason for picture in self.pictures for reason in picture.reasons))

    @property
    def kinds(self) -> list[str]:
        """Every kind of reason, once: "worst class"."""
        return list(dict.fromkeys(reason.partition(": ")[0] for reason in self.reasons))

    def masks_json(self, picture: Picture) -> dict[str, Any]:
        """Return what the page decodes when the picture is shown."""
        return {"width": picture.width, "height": picture.height, "masks": picture.masks}


class _Loaded(NamedTuple):
    image: GalleryImage
    photo: Pillow.Image
    masks: dict[str, Mask]


def gallery_files(run: Run, steps: Sequence[int], largest: int = LARGEST, room: int = ROOM) -> GalleryFiles:
    """Return the gallery of a run, with the predictions after some steps, in about ``room`` bytes at most."""
    loaded, unread = _load_all(run, steps, largest)
    # Ids in 16 bits, where ignore is 65535; every other id gets a position among the paints.
    found: set[int] = set()
    for one in loaded:
        for mask in one.masks.values():
            found |= {int(id) for id in np.unique(mask) if id != ignore_value(mask)}
    table = paints(run, found)
    places = np.full(65536, len(table) - 1, np.uint16)
    places[[paint.id for paint in table[:-1]]] = np.arange(len(table) - 1)
    depth = 1 if len(table) <= 256 else 2
    pictures = [_packed(one, places, depth) for one in loaded]
    total = sum(picture.bytes for picture in pictures)
    if total > room and largest > 64:  # bytes grow about as the side to the power of 1.5
        return gallery_files(run, steps, max(64, int(largest * (room / total) ** 0.6)), room)
    return GalleryFiles(pictures, table, depth, unread)


def _load_all(run: Run, steps: Sequence[int], largest: int) -> tuple[list[_Loaded], list[str]]:
    """Return the images of a gallery, and why others could not be read: a page does without them."""
    loaded, unread = [], []
    try:
        images = run.gallery()
    except UserError as error:
        return [], [str(error)]
    for image in images:
        try:
            loaded.append(_load(image, steps, largest))
        except UserError as error:
            unread.append(str(error))
    return loaded, unread


def _load(image: GalleryImage, steps: Sequence[int], largest: int) -> _Loaded:
    photo = open_raster(image.image, "gallery image").convert("RGB")
    photo.thumbnail((largest, largest))
    files = {TRUTH: image.truth, **{str(step): image.predictions.get(step) for step in steps}}
    masks = {name: _resized(decode_mask(path), photo.size) for name, path in files.items() if path is not None}
    return _Loaded(image, photo, masks)


def _resized(mask: Mask, size: tuple[int, int]) -> Mask:
    """Return a mask at another size (width, height), by nearest neighbours."""
    width, height = size
    rows = (np.arange(height) + 0.5) * mask.shape[0] // height
    columns = (np.arange(width) + 0.5) * mask.shape[1] // width
    resized: Mask = mask[rows.astype(np.int64)[:, None], columns.astype(np.int64)]
    return resized


def _packed(one: _Loaded, places: NDArray[np.uint16], depth: int) -> Picture:
    out = io.BytesIO()
    one.photo.save(out, format="JPEG", quality=82)
    masks = {}
    for name, mask in one.masks.items():
        wide = np.where(mask == ignore_value(mask), np.uint16(65535), mask.astype(np.uint16))
        indices = places[wide].astype("<u2" if depth == 2 else np.uint8)
        masks[name] = _text(zlib.compress(indices.tobytes(), 6))
    photo = "data:image/jpeg;base64," + _text(out.getvalue())
    return Picture(one.image.id, one.image.reasons, *one.photo.size, photo, masks)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
