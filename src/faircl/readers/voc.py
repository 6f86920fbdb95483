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

from faircl.data.file_data import (
    IMAGE_SUFFIXES,
    MASK_SUFFIXES,
    FileData,
    FilePair,
    Listing,
    describe_missing,
    open_root,
    raise_cannot_list,
)
from faircl.data.file_pairs import find_files
from faircl.data.images import RGB, ImageReading
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import IGNORE_COLOUR, ColourTable, file_lines
from faircl.data.sample import Classes
from faircl.errors import UserError, did_you_mean
from faircl.readers.base import FileConfig, Reader
from faircl.readers.catalog import VOC, VOC_PALETTE

AUGMENTED = "train_aug"
"""The split whose masks are SBD's where VOC has none."""

OWN_MASKS, AUGMENTED_MASKS = "SegmentationClass", "SegmentationClassAug"
LISTS = "ImageSets/Segmentation"

_LIST_FOLDERS = (LISTS, "splits", "list")  # the first that has a list counts
_IMAGE_FOLDER = "JPEGImages"
_PAIR = re.compile(r"(.+\.(?:jpe?g|png))\s+(.+\.png)", re.IGNORECASE)
_SUFFIX = re.compile(r"\.(?:jpe?g|png)$", re.IGNORECASE)
_EXPECTED = f"expected VOCdevkit/VOC2012 with {_IMAGE_FOLDER}/, {OWN_MASKS}/ and {LISTS}/"


class VocData(FileData):
    """Reader of PASCAL VOC 2012. An id is a file's name without extension; order is that of the list.

    Masks are index pictures with 255 for void, or RGB pictures in VOC's colours.
    """

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(find_voc(root), images)
        self.classes, self.palette = Classes(VOC, background=True), VOC_PALETTE
        colours = {(int(red), int(green), int(blue)): id for id, (red, green, blue) in enumerate(VOC_PALETTE)}
        self.coding = MaskCoding(len(VOC), ColourTable(colours, IGNORE_COLOUR), listed_in="PASCAL VOC")

    def splits(self) -> tuple[str, ...]:
        """Names of the lists, and train_aug where it needs none."""
        names = set(find_lists(self.root))
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
        have = f"it has: {', '.join(splits)}" if splits else "it has none"
        if split != AUGMENTED:
            raise UserError(f"{lacks}.{did_you_mean(split, splits)} Choose another split; {have}.")
        if os.path.isdir(self.root / AUGMENTED_MASKS):
            raise UserError(f"{lacks}, and no val.txt to tell which masks of {AUGMENTED_MASKS} to leave out; add one.")
        raise UserError(
            f"{lacks} and no folder {AUGMENTED_MASKS}; make both with 'faircl data prepare voc', or choose another "
            f"split ({have})."
        )

    def list_split(self, split: str) -> Listing:
        """Find the masks, and the images that are there, of a list's ids."""
        lists = find_lists(self.root)
        masks, skipped = self._masks(AUGMENTED_MASKS if split == AUGMENTED else OWN_MASKS)
        ids = read_list(lists[split]) if split in lists else self._all_but_val(masks.keys(), lists["val"])
        if split != AUGMENTED and not masks.keys() >= set(ids):
            others, skipped_others = self._masks(AUGMENTED_MASKS)
            masks, skipped = others | masks, skipped + skipped_others
        images, foreign = find_files(self.root, _IMAGE_FOLDER, IMAGE_SUFFIXES)
        files = {id: FilePair(images.get(id), masks[id]) for id in ids if id in masks}
        bare = tuple(images.get(id, f"{_IMAGE_FOLDER}/{id}.jpg") for id in ids if id not in masks)
        return Listing(files, (*skipped, *foreign), bare)

    def check_listing(self, split: str, listing: Listing) -> None:
        """Refuse ids of a list that have no mask, and an empty list."""
        if listing.bare:
            bare = [os.path.splitext(name.removeprefix(f"{_IMAGE_FOLDER}/"))[0] for name in listing.bare]
            raise UserError(self._without_mask(split, bare))
        super().check_listing(split, listing)

    def image_key(self, split: str, id: str) -> str:
        """Return an image's name: masks of one image may lie in two folders."""
        return self._files(split, id).image or f"{_IMAGE_FOLDER}/{id}.jpg"

    def _all_but_val(self, masks: Set[str], val: Path) -> tuple[str, ...]:
        """Return the ids of train_aug where no list has them."""
        return tuple(sorted(masks - set(read_list(val))))

    def _masks(self, folder: str) -> tuple[dict[str, str], list[str]]:
        """Masks of a folder by id, and its other files, all below the root; none where it is missing."""
        return find_files(self.root, folder, MASK_SUFFIXES)

    def _without_mask(self, split: str, bare: list[str]) -> str:
        folder = AUGMENTED_MASKS if split == AUGMENTED else OWN_MASKS
        mend = "make them with 'faircl data prepare voc'" if split == AUGMENTED else "unpack the devkit again"
        return (
            f"List {split}.txt of {self.root} has {describe_missing(bare, 'id', 'no mask')}; expected "
            f"{self.root / folder / bare[0]}.png: {mend}, or take the ids out of the list."
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


def find_lists(root: Path) -> dict[str, Path]:
    """Return the lists of images by split."""
    lists: dict[str, Path] = {}
    for folder in (root / name for name in _LIST_FOLDERS):
        try:
            names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        except OSError as error:
            raise_cannot_list(error)
        for name in names:
            split, suffix = os.path.splitext(name)
            if suffix.lower() == ".txt" and not name.startswith("."):
                lists.setdefault(split, folder / name)
    return lists


def read_list(path: Path) -> tuple[str, ...]:
    """Ids of a list, in its order. Lines are ids, or paths of an image and its mask; blank lines say nothing."""
    lines = file_lines(path, "list")
    ids: dict[str, None] = {}
    for id in (_id(line, path) for line in lines if line):
        if id in ids:
            raise UserError(f"List {path} names '{id}' twice; remove one of the two lines.")
        ids[id] = None
    if not ids:
        raise UserError(f"List {path} is empty; write one image id per line.")
    return tuple(ids)


def _id(line: str, path: Path) -> str:
    if not (pair := _PAIR.fullmatch(line)):
        return _stem(line)
    image, mask = map(_stem, pair.groups())
    if image != mask:
        raise UserError(f"List {path} pairs image '{image}' with mask '{mask}'; both must have the same name.")
    return image


def _stem(name: str) -> str:
    return _SUFFIX.sub("", name.rpartition("/")[2])
