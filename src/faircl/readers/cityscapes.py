"""Cityscapes, finely annotated.

leftImg8bit/{split}/{city}/x_leftImg8bit.png
gtFine/{split}/{city}/x_gtFine_labelIds.png        ids 0 to 33, as downloaded; or
gtFine/{split}/{city}/x_gtFine_labelTrainIds.png   train ids 0 to 18 and 255, as made by Cityscapes' scripts
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from faircl.data.file_data import FileData
from faircl.data.images import RGB, ImageReading
from faircl.data.listing import (
    IMAGE_SUFFIXES,
    MASK_SUFFIXES,
    FilePair,
    Listing,
    describe_missing,
    find_files,
    list_files,
    open_root,
    subfolders,
)
from faircl.data.mask_coding import UNKNOWN, MaskCoding, MaskCounts
from faircl.data.masks import IGNORE_8BIT
from faircl.data.sample import Classes
from faircl.errors import UserError, unknown_name
from faircl.labels import BACKGROUND, IGNORE, Mask
from faircl.readers.base import FileConfig, Reader
from faircl.readers.catalog import CITYSCAPES, CITYSCAPES_CITIES, CITYSCAPES_PALETTE, CITYSCAPES_TRAIN_IDS

_IDS, _TRAIN_IDS = "labelIds", "labelTrainIds"
_KINDS = {"auto": (_IDS, _TRAIN_IDS), "ids": (_IDS,), "train_ids": (_TRAIN_IDS,)}
_PICTURES = (_IDS, _TRAIN_IDS, "color", "instanceIds", "instanceTrainIds")
_MARK, _POLYGONS, _IMAGE_MARK = "_gtFine_", "_gtFine_polygons.json", "_leftImg8bit"
_PANOPTIC = "cityscapes_panoptic_"  # folders that Cityscapes' scripts write beside the splits
_EXPECTED = "expected gtFine/{split}/{city}/ and leftImg8bit/{split}/{city}/"
_HINTS = {
    _IDS: "labelIds go from 0 to 33, with 255 for ignored pixels: if the file shows instances or previews, unpack "
    "gtFine again.",
    _TRAIN_IDS: "train ids go from 0 to 18, with 255 for ignored pixels: if the file holds labelIds under a wrong "
    "name, rename it, or else make it again from its polygons.",
}

DOMAIN_TASKS = ("11-5", "11-1", "1-1")
"""Published tasks whose steps bring cities."""


class CityscapesData(FileData):
    """Reader of Cityscapes. An id is ``city/x``, and its domain is the city.

    `labels`: which masks are read, ``ids``, ``train_ids``, or ``auto``, the first of the two that all images of a split
    have. `background`: ``none``, or ``void``, which makes ignored pixels a background class with id 0.
    """

    def __init__(
        self, root: str | Path, labels: str = "auto", background: str = "none", images: ImageReading = RGB
    ) -> None:
        super().__init__(open_root(root, _EXPECTED), images)
        if labels not in _KINDS:
            raise unknown_name("labels setting", labels, _KINDS)
        if background not in ("none", "void"):
            raise unknown_name("background setting", background, ("none", "void"))
        if not os.path.isdir(self.root / "gtFine"):
            raise UserError(f"Data folder {self.root} has no gtFine; {_EXPECTED} in it.")
        self._kinds, ignore_is_background = _KINDS[labels], background == "void"
        self.classes, self.palette = Classes(CITYSCAPES, background=False), CITYSCAPES_PALETTE
        if ignore_is_background:
            self.classes = Classes(("background", *CITYSCAPES), background=True, background_is_named=False)
            self.palette = np.concatenate([np.zeros((1, 3), np.uint8), CITYSCAPES_PALETTE])
        self._codings = {kind: _coding(kind, ignore_is_background) for kind in (_IDS, _TRAIN_IDS)}
        self.coding = self._codings[self._kinds[0]]
        self.domain_order, self.domain_tasks = CITYSCAPES_CITIES, DOMAIN_TASKS

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits with annotations, sorted."""
        names = subfolders(self.root / "gtFine")
        return tuple(sorted(name for name in names if not name.startswith(_PANOPTIC)))

    def list_split(self, split: str) -> Listing:
        """Pair the masks of gtFine/{split}, sorted by city, with the images."""
        found, skipped = self._annotations(split)
        kind = self._choose(split, found)
        images, others = self._images(split)
        order = sorted(found, key=lambda id: id.split("/"))
        files = {id: FilePair(images.get(id), found[id][kind]) for id in order}
        unmasked = tuple(path for id, path in images.items() if id not in found)
        return Listing(files, (*(f"gtFine/{split}/{name}" for name in skipped), *others), unmasked)

    def label_key(self, split: str, id: str) -> str:
        """Return the cache key of a mask's labels: the coding of its kind."""
        return self._coding_of(split, id).fingerprint

    def decode_mask(self, split: str, id: str, data: bytes) -> Mask:
        """Return class ids (H, W) of a mask file's bytes."""
        return self._coding_of(split, id).decode(data, self.mask_path(split, id))

    def count_mask(self, split: str, id: str, data: bytes) -> MaskCounts:
        """Count the classes of a mask file's bytes."""
        return self._coding_of(split, id).count(data, self.mask_path(split, id))

    def suspicion(self, pixels: NDArray[np.int64]) -> str:
        """Return a warning if no labelId is above 18: real labelIds of street scenes are, train ids are not."""
        own = pixels[1:] if self.classes.background else pixels
        high = [id for label, id in CITYSCAPES_TRAIN_IDS.items() if id is not None and label >= len(CITYSCAPES)]
        if self.coding is not self._codings[_IDS] or own[high].any():
            return ""
        return "no mask holds a labelId above 18, as if they were labelTrainIds under the name of labelIds"

    def _coding_of(self, split: str, id: str) -> MaskCoding:
        """Return the coding of a mask by its file name; with ``auto``, splits may have different kinds."""
        kind = self.mask_path(split, id).stem.rpartition(_MARK)[2]
        return self._codings[kind]

    def _annotations(self, split: str) -> tuple[dict[str, dict[str, str]], list[str]]:
        """Return the annotation files by id and kind, relative to the root, and the other files."""
        pictures, others = list_files(self.root / "gtFine" / split, MASK_SUFFIXES)
        found: dict[str, dict[str, str]] = {}
        skipped: list[str] = []
        for name, suffix in pictures.items():
            id, _, kind = name.rpartition(_MARK)
            if _is_id(id) and kind in _PICTURES:
                found.setdefault(id, {})[kind] = f"gtFine/{split}/{name}{suffix}"
            else:
                skipped.append(name + suffix)
        for name in others:
            if name.endswith(_POLYGONS) and _is_id(name.removesuffix(_POLYGONS)):
                found.setdefault(name.removesuffix(_POLYGONS), {})
            else:
                skipped.append(name)
        return found, skipped

    def _choose(self, split: str, found: dict[str, dict[str, str]]) -> str:
        """Return the first kind of mask that all annotated images have."""
        lacking = {kind: sorted(id for id in found if kind not in found[id]) for kind in self._kinds}
        folder = self.root / "gtFine" / split
        if all(len(ids) == len(found) for ids in lacking.values()):
            names = " or ".join(f"x{_MARK}{kind}.png" for kind in self._kinds)
            raise UserError(
                f"{folder} has no mask; expected {names} in the folder of each city: unpack gtFine again, or set "
                "data.labels to the kind that is there."
            )
        for kind in self._kinds:
            if not lacking[kind]:
                return kind
        lacks = " and ".join(describe_missing(ids, "image", f"no {kind} mask") for kind, ids in lacking.items())
        raise UserError(
            f"{folder} has {lacks}; all images of a split need the same kind of mask, so unpack gtFine again or "
            "make the missing ones from their polygons."
        )

    def _images(self, split: str) -> tuple[dict[str, str], list[str]]:
        """Return the images of a split by id, and the other files, relative to the root."""
        found, skipped = find_files(self.root, f"leftImg8bit/{split}", IMAGE_SUFFIXES)
        images = {name.removesuffix(_IMAGE_MARK): path for name, path in found.items() if name.endswith(_IMAGE_MARK)}
        return images, skipped + [path for name, path in found.items() if not name.endswith(_IMAGE_MARK)]


class CityscapesConfig(FileConfig):
    """Cityscapes, 19 classes."""

    name: Literal["cityscapes"] = "cityscapes"
    test: str = Field("val", description="split to evaluate on")
    labels: Literal["auto", "ids", "train_ids"] = Field(
        "auto",
        description="masks to read: ids (labelIds), train_ids (labelTrainIds), or auto, the first that all images have",
    )
    background: Literal["none", "void"] = Field(
        "none", description="whether ignored pixels stay ignored (none) or are background, id 0 (void)"
    )

    def open(self) -> CityscapesData:
        """Open the tree."""
        return CityscapesData(self.required_root(), self.labels, self.background, self.image_reading())


class CityscapesReader(Reader):
    """Cityscapes, 19 classes."""

    Config = CityscapesConfig
    summary = "Cityscapes, 19 classes, finely annotated; steps of classes or of cities"
    layout = """\
leftImg8bit/{split}/{city}/a_leftImg8bit.png
gtFine/{split}/{city}/a_gtFine_labelIds.png (or labelTrainIds)"""
    tasks = (*DOMAIN_TASKS, "14-5", "14-1", "13-6", "13-1", "10-9", "10-1", "offline")


def _is_id(name: str) -> bool:
    """Whether a name is in a city's folder and not hidden."""
    city, _, own = name.rpartition("/")
    return bool(city) and "/" not in city and bool(own) and not own.startswith(".")


def _coding(kind: str, ignore_is_background: bool) -> MaskCoding:
    """Return the coding of a kind of mask; with `ignore_is_background`, ignored pixels are id 0 and classes follow."""
    values = np.full(IGNORE_8BIT + 1, UNKNOWN, np.uint16)
    stored = CITYSCAPES_TRAIN_IDS if kind == _IDS else {id: id for id in range(len(CITYSCAPES))}
    values[IGNORE_8BIT] = BACKGROUND if ignore_is_background else IGNORE
    for label, id in stored.items():
        values[label] = values[IGNORE_8BIT] if id is None else id + ignore_is_background
    classes = len(CITYSCAPES) + ignore_is_background
    return MaskCoding(
        classes, values=values, has_ignore=not ignore_is_background, hint=_HINTS[kind], listed_in="Cityscapes"
    )
