"""PASCAL VOC 2012 as its devkit unpacks, with or without the masks that SBD adds.

JPEGImages/x.jpg
SegmentationClass/x.png            VOC's own masks
SegmentationClassAug/x.png         these and SBD's, for the split train_aug
ImageSets/Segmentation/{split}.txt
"""

from __future__ import annotations

import os
import re
from collections.abc import Set
from pathlib import Path
from typing import Literal

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
    open_root,
)
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import IGNORE_COLOUR, ColourTable
from faircl.data.raster_files import file_lines
from faircl.data.sample import Classes
from faircl.errors import UserError, did_you_mean, listed
from faircl.readers.base import FileConfig, Reader
from faircl.readers.catalog import VOC, VOC_PALETTE
from faircl.readers.id_lists import find_lists, unique_ids

AUGMENTED = "train_aug"
"""The split whose masks are SBD's where VOC has none."""

OWN_MASKS, AUGMENTED_MASKS = "SegmentationClass", "SegmentationClassAug"
LISTS = "ImageSets/Segmentation"

_LIST_FOLDERS = (LISTS, "splits", "list")  # a list in an earlier folder takes precedence
_IMAGE_FOLDER = "JPEGImages"
_PAIR = re.compile(r"(.+\.(?:jpe?g|png))\s+(.+\.png)", re.IGNORECASE)
_SUFFIX = re.compile(r"\.(?:jpe?g|png)$", re.IGNORECASE)
_EXPECTED = f"expected VOCdevkit/VOC2012 with {_IMAGE_FOLDER}/, {OWN_MASKS}/ and {LISTS}/"


class VocData(FileData):
    """Reader of PASCAL VOC 2012. An id is a file name without extension; ids keep the order of the list.

    Masks are index pictures with 255 for ignored pixels, or RGB pictures in VOC's colours.
    """

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(find_voc(root), images)
        self.classes, self.palette = Classes(VOC, background=True), VOC_PALETTE
        colours = {(int(red), int(green), int(blue)): id for id, (red, green, blue) in enumerate(VOC_PALETTE)}
        self.coding = MaskCoding(len(VOC), ColourTable(colours, IGNORE_COLOUR), listed_in="PASCAL VOC")

    def splits(self) -> tuple[str, ...]:
        """Return the names of the lists, and train_aug if its masks exist without a list."""
        names = set(_split_lists(self.root))
        if "val" in names and os.path.isdir(self.root / AUGMENTED_MASKS):
            names.add(AUGMENTED)
        return tuple(sorted(names))

    def check_split(self, split: str) -> None:
        """Raise an error if there is no such split."""
        splits = self.splits()
        if split in splits:
            return
        first, *others = _LIST_FOLDERS
        lacks = f"{self.root} has no list {split}.txt (looked in {first}, {' and '.join(others)})"
        have = f"it has: {listed(splits)}" if splits else "it has none"
        if split != AUGMENTED:
            raise UserError(f"{lacks}.{did_you_mean(split, splits)} Choose another split; {have}.")
        if os.path.isdir(self.root / AUGMENTED_MASKS):
            raise UserError(f"{lacks}, and no val.txt to tell which masks of {AUGMENTED_MASKS} to leave out; add one.")
        raise UserError(
            f"{lacks} and no folder {AUGMENTED_MASKS}; make both with 'faircl data prepare voc', or choose another "
            f"split ({have})."
        )

    def list_split(self, split: str) -> Listing:
        """Find the masks and images of a list's ids."""
        lists = _split_lists(self.root)
        mask_folder = AUGMENTED_MASKS if split == AUGMENTED else OWN_MASKS
        masks, skipped = find_files(self.root, mask_folder, MASK_SUFFIXES)
        ids = read_list(lists[split]) if split in lists else self._all_but_val(masks.keys(), lists["val"])
        if split != AUGMENTED and not masks.keys() >= set(ids):
            others, skipped_others = find_files(self.root, AUGMENTED_MASKS, MASK_SUFFIXES)
            masks, skipped = others | masks, skipped + skipped_others
        images, skipped_images = find_files(self.root, _IMAGE_FOLDER, IMAGE_SUFFIXES)
        files = {id: FilePair(images.get(id), masks[id]) for id in ids if id in masks}
        unmasked = tuple(images.get(id, f"{_IMAGE_FOLDER}/{id}.jpg") for id in ids if id not in masks)
        return Listing(files, (*skipped, *skipped_images), unmasked)

    def check_listing(self, split: str, listing: Listing) -> None:
        """Raise an error for listed ids without a mask, and for an empty list."""
        if listing.unmasked:
            ids = [os.path.splitext(name.removeprefix(f"{_IMAGE_FOLDER}/"))[0] for name in listing.unmasked]
            raise UserError(self._missing_masks(split, ids))
        super().check_listing(split, listing)

    def image_key(self, split: str, id: str) -> str:
        """Return the path of an image: its masks may be in two folders, so they do not identify it."""
        return self._files(split, id).image or f"{_IMAGE_FOLDER}/{id}.jpg"

    def _all_but_val(self, masks: Set[str], val: Path) -> tuple[str, ...]:
        """Return the ids of train_aug if it has no list."""
        return tuple(sorted(masks - set(read_list(val))))

    def _missing_masks(self, split: str, ids: list[str]) -> str:
        folder = AUGMENTED_MASKS if split == AUGMENTED else OWN_MASKS
        remedy = "make them with 'faircl data prepare voc'" if split == AUGMENTED else "unpack the devkit again"
        return (
            f"List {split}.txt of {self.root} has {describe_missing(ids, 'id', 'no mask')}; expected "
            f"{self.root / folder / ids[0]}.png: {remedy}, or take the ids out of the list."
        )


class VocConfig(FileConfig):
    """PASCAL VOC 2012."""

    name: Literal["voc"] = "voc"
    train: str = Field(AUGMENTED, description="list to train on")
    test: str = Field("val", description="list to evaluate on")

    def open(self) -> VocData:
        """Open the devkit."""
        return VocData(self.required_root(), self.image_reading())


class VocReader(Reader):
    """PASCAL VOC 2012."""

    Config = VocConfig
    summary = "PASCAL VOC 2012, 20 classes and background; train_aug adds SBD's masks"
    layout = """\
VOCdevkit/VOC2012/JPEGImages/a.jpg
VOCdevkit/VOC2012/SegmentationClass/a.png
VOCdevkit/VOC2012/SegmentationClassAug/a.png
VOCdevkit/VOC2012/ImageSets/Segmentation/{split}.txt"""
    tasks = ("19-1", "15-5", "15-1", "10-1", "5-3", "offline")


def find_voc(root: str | Path) -> Path:
    """Return the folder VOC2012: the root itself, or below it."""
    given = open_root(root, _EXPECTED)
    for place in (given, given / "VOC2012", given / "VOCdevkit" / "VOC2012"):
        if any(os.path.isdir(place / name) for name in (OWN_MASKS, AUGMENTED_MASKS, LISTS)):
            return place
    raise UserError(f"Data folder {given} is not PASCAL VOC 2012; {_EXPECTED} in it.")


def _split_lists(root: Path) -> dict[str, Path]:
    """Return the lists of image ids by split."""
    lists: dict[str, Path] = {}
    for folder in _LIST_FOLDERS:
        lists = find_lists(root / folder) | lists
    return lists


def read_list(path: Path) -> tuple[str, ...]:
    """Return the ids of a list in its order. A line is an id, or the paths of an image and its mask."""
    ids = unique_ids((_id(line, path) for line in file_lines(path, "list") if line), path)
    if not ids:
        raise UserError(f"List {path} is empty; write one image id per line.")
    return ids


def _id(line: str, path: Path) -> str:
    if not (pair := _PAIR.fullmatch(line)):
        return _stem(line)
    image, mask = map(_stem, pair.groups())
    if image != mask:
        raise UserError(f"List {path} pairs image '{image}' with mask '{mask}'; both must have the same name.")
    return image


def _stem(name: str) -> str:
    return _SUFFIX.sub("", name.rpartition("/")[2])
