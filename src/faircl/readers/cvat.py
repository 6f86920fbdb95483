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
from faircl.data.masks import Colour, ColourTable, file_lines
from faircl.data.sample import Classes
from faircl.errors import UserError, did_you_mean
from faircl.readers.base import FileConfig, Reader

LABELMAP, IMAGES, MASKS, LISTS = "labelmap.txt", "JPEGImages", "SegmentationClass", "ImageSets/Segmentation"

_EXPECTED = f"expected {LABELMAP}, {IMAGES}/, {MASKS}/ and {LISTS}/{{split}}.txt"
_LABEL = re.compile(r"(.*?\S)\s*:\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*(?::.*)?")


class CvatData(FileData):
    """Reader of such an export. The constructor reads labelmap.txt only.

    Classes keep the file's order, but ``background``, where it is one, is id 0. Masks that no list names are left out,
    as are images of a list that have no mask: CVAT lists images nobody has annotated too.
    """

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(open_root(root, _EXPECTED), images)
        missing = [name for name in (MASKS, LISTS) if not os.path.isdir(self.root / name)]
        if not os.path.isfile(self.root / LABELMAP):
            missing.insert(0, LABELMAP)
        if missing:
            raise UserError(f"Data folder {self.root} has no {' and no '.join(missing)}; {_EXPECTED} in it.")
        colours = read_labelmap(self.root / LABELMAP)
        names = sorted(
            colours, key=lambda name: name.lower() != "background"
        )  # it comes first; others keep their order
        self.classes = Classes(tuple(names), background=names[0].lower() == "background")
        self.palette = np.array([colours[name] for name in names], np.uint8)
        table = ColourTable({colours[name]: id for id, name in enumerate(names)})
        self.coding = ColourCoding(len(names), table, listed_in=LABELMAP)

    def splits(self) -> tuple[str, ...]:
        """Names of the lists, sorted."""
        return tuple(sorted(self._lists()))

    def check_split(self, split: str) -> None:
        """Raise an error if there is no such list."""
        splits = self.splits()
        if split not in splits:
            have = f"It has: {', '.join(splits)}" if splits else "It has none"
            raise UserError(
                f"{self.root} has no list {LISTS}/{split}.txt.{did_you_mean(split, splits)} {have}; name the lists in "
                "data.train and data.test, or write one id per line into a new one."
            )

    def list_split(self, split: str) -> Listing:
        """Find the masks, and the images that are there, of a list's ids, in its order."""
        masks, skipped = find_files(self.root, MASKS, MASK_SUFFIXES)
        images, skipped_images = find_files(self.root, IMAGES, IMAGE_SUFFIXES)
        paths = self._lists()
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

    def _lists(self) -> dict[str, Path]:
        """Paths of the lists by name."""
        folder = self.root / LISTS
        try:
            names = [name for name in os.listdir(folder) if name.lower().endswith(".txt") and not name.startswith(".")]
        except OSError as error:
            raise_cannot_list(error)
        return {os.path.splitext(name)[0]: folder / name for name in names}


def read_labelmap(path: Path) -> dict[str, Colour]:
    """Colours by class name, in the file's order. Lines that start with '#' are comments."""
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
    """Ids of a list, in its order: whole lines, for names may have spaces; quotes around one are dropped."""
    ids: dict[str, None] = {}
    for line in _lines(path):
        id = line[1:-1] if len(line) > 2 and line[0] == line[-1] == '"' else line
        if id in ids:
            raise UserError(f"List {path} names '{id}' twice; remove one of the two lines.")
        ids[id] = None
    return tuple(ids)


def _lines(path: Path) -> list[str]:
    """Lines of a text that say something."""
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
