"""CVAT's export "Segmentation mask 1.1".

labelmap.txt                        a class per line: ``name:r,g,b:parts:actions``
JPEGImages/**/x.jpg                 images, of any extension
SegmentationClass/**/x.png          masks painted in the classes' colours
ImageSets/Segmentation/{split}.txt  an id per line: the path of an image without extension
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from faircl.data.colour_masks import ColourCoding
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
from faircl.data.masks import Colour, ColourTable
from faircl.data.raster_files import file_lines
from faircl.data.sample import Classes
from faircl.errors import UserError, did_you_mean, listed
from faircl.readers.base import FileConfig, Reader
from faircl.readers.id_lists import find_lists, unique_ids

LABELMAP, IMAGES, MASKS, LISTS = "labelmap.txt", "JPEGImages", "SegmentationClass", "ImageSets/Segmentation"

_EXPECTED = f"expected {LABELMAP}, {IMAGES}/, {MASKS}/ and {LISTS}/{{split}}.txt"
_LABEL = re.compile(r"(.*?\S)\s*:\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*(?::.*)?")


class CvatData(FileData):
    """Reader of a CVAT export. The constructor reads labelmap.txt only.

    Classes keep the file's order, except that a class ``background`` is id 0. Masks in no list are skipped, and so are
    listed images without a mask, because CVAT also lists images that are not annotated.
    """

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(open_root(root, _EXPECTED), images)
        missing = [name for name in (MASKS, LISTS) if not os.path.isdir(self.root / name)]
        if not os.path.isfile(self.root / LABELMAP):
            missing.insert(0, LABELMAP)
        if missing:
            raise UserError(f"Data folder {self.root} has no {' and no '.join(missing)}; {_EXPECTED} in it.")
        colours = read_labelmap(self.root / LABELMAP)
        names = sorted(colours, key=lambda name: name.lower() != "background")  # background first
        self.classes = Classes(tuple(names), background=names[0].lower() == "background")
        self.palette = np.array([colours[name] for name in names], np.uint8)
        table = ColourTable({colours[name]: id for id, name in enumerate(names)})
        self.coding = ColourCoding(len(names), table, listed_in=LABELMAP)

    def splits(self) -> tuple[str, ...]:
        """Return the names of the lists, sorted."""
        return tuple(sorted(find_lists(self.root / LISTS)))

    def check_split(self, split: str) -> None:
        """Raise an error if there is no such list."""
        splits = self.splits()
        if split not in splits:
            have = f"It has: {listed(splits)}" if splits else "It has none"
            raise UserError(
                f"{self.root} has no list {LISTS}/{split}.txt.{did_you_mean(split, splits)} {have}; name the lists in "
                "data.train and data.test, or write one id per line into a new one."
            )

    def list_split(self, split: str) -> Listing:
        """Find the masks and images of a list's ids, in its order."""
        masks, skipped = find_files(self.root, MASKS, MASK_SUFFIXES)
        images, skipped_images = find_files(self.root, IMAGES, IMAGE_SUFFIXES)
        paths = find_lists(self.root / LISTS)
        lists = {name: read_ids(path) for name, path in paths.items()}
        ids = lists[split]
        if lost := [id for id in ids if id not in masks and id not in images]:
            raise UserError(
                f"List {paths[split]} has {describe_missing(lost, 'id', 'neither image nor mask')}; expected "
                f"{self.root / MASKS / lost[0]}.png: add the files or take the ids out of the list."
            )
        listed = set().union(*lists.values())
        skipped += skipped_images + [
            path for found in (masks, images) for id, path in found.items() if id not in listed
        ]
        skipped += [images[id] for id in ids if id not in masks]
        return Listing({id: FilePair(images.get(id), masks[id]) for id in ids if id in masks}, tuple(skipped))


def read_labelmap(path: Path) -> dict[str, Colour]:
    """Return the colours by class name, in the file's order. Lines that start with '#' are comments."""
    colours: dict[str, Colour] = {}
    for line in _lines(path):
        if line.startswith("#"):
            continue
        if not (match := _LABEL.fullmatch(line)):
            raise UserError(
                f"{path} has the line '{line}'; expected 'name:r,g,b:parts:actions', as in 'car:0,0,142::'."
            )
        name, colour = match[1], (int(match[2]), int(match[3]), int(match[4]))
        if max(colour) > 255:
            raise UserError(f"{path} gives '{name}' the colour {colour}; red, green and blue go from 0 to 255.")
        if name in colours:
            raise UserError(f"{path} names '{name}' twice; names must differ.")
        if other := next((known for known in colours if colours[known] == colour), None):
            raise UserError(f"{path} gives colour {colour} to '{other}' and to '{name}'; change one and export again.")
        colours[name] = colour
    if not colours:
        raise UserError(f"{path} names no class; write a class per line, as in 'car:0,0,142::'.")
    return colours


def read_ids(path: Path) -> tuple[str, ...]:
    """Return the ids of a list in its order. An id is a whole line, spaces included, without quotes around it."""
    return unique_ids((_unquote(line) for line in _lines(path)), path)


def _unquote(line: str) -> str:
    return line[1:-1] if len(line) > 2 and line[0] == line[-1] == '"' else line


def _lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not blank."""
    return [line for line in file_lines(path, "list") if line]


class CvatConfig(FileConfig):
    """An export of CVAT, "Segmentation mask 1.1"."""

    name: Literal["cvat"] = "cvat"
    train: str = Field("train", description="list to train on")
    test: str = Field("test", description="list to evaluate on")

    def open(self) -> CvatData:
        """Open the export."""
        return CvatData(self.required_root(), self.image_reading())


class CvatReader(Reader):
    """An export of CVAT."""

    Config = CvatConfig
    summary = 'an export of CVAT, "Segmentation mask 1.1", with its own classes'
    layout = """\
labelmap.txt
JPEGImages/…/a.jpg
SegmentationClass/…/a.png
ImageSets/Segmentation/{split}.txt"""
