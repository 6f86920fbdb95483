"""CamVid with the 11 classes of published tables, in the layout of its authors or of SegNet's authors.

701_StillsRaw_full/x.png, LabeledApproved_full/x_L.png     all images together, masks in the colours of 32 labels
{split}/x.png, {split}annot/x.png                          by split, masks hold ids 0 to 10, and 11 for ignored pixels
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import numpy as np

from faircl.data.colour_masks import ColourCoding
from faircl.data.file_data import FileData
from faircl.data.images import RGB, ImageReading
from faircl.data.listing import (
    IMAGE_SUFFIXES,
    MASK_SUFFIXES,
    FilePair,
    Listing,
    find_files,
    first_existing_folder,
    list_pairs,
    open_root,
)
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import ColourTable
from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.readers.base import FileConfig, Reader
from faircl.readers.catalog import CAMVID_11, CAMVID_11_PALETTE, CAMVID_32, CAMVID_32_TO_11

SPLITS = ("train", "val", "test")
LABELS, STILLS = "LabeledApproved_full", ("701_StillsRaw_full", "raw")

_EXPECTED = f"expected {STILLS[0]}/ and {LABELS}/, or train/, trainannot/, test/ and testannot/"
_MASK_END = "_L"
_FRAME = re.compile(r"(0001TP|0006R0|0016E5|Seq05VD)_f?(\d+)")
_SEGNET_IGNORE = 11


class CamVidData(FileData):
    """Reader of CamVid in its authors' layout; the splits are the usual 367, 101 and 233 images.

    An id is an image's name without extension.
    """

    palette = CAMVID_11_PALETTE

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(open_root(root, _EXPECTED), images)
        self.classes = Classes(CAMVID_11, background=False)
        colours = {
            colour: IGNORE if (group := CAMVID_32_TO_11[name]) is None else CAMVID_11.index(group)
            for name, colour in CAMVID_32.items()
        }
        self.coding = ColourCoding(len(CAMVID_11), ColourTable(colours), listed_in="CamVid's 32 labels")

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits."""
        return SPLITS

    def list_split(self, split: str) -> Listing:
        """List the masks of a split by their names; masks with other names are skipped."""
        labels, skipped = find_files(self.root, LABELS, MASK_SUFFIXES)
        stills, skipped_stills = find_files(self.root, first_existing_folder(self.root, *STILLS), IMAGE_SUFFIXES)
        masks: dict[str, str] = {}
        for name, path in labels.items():
            id = name.removesuffix(_MASK_END)
            if id == name or camvid_split(id) is None:
                skipped.append(path)
            elif camvid_split(id) == split:
                masks[id] = path
        unmasked = tuple(path for id, path in stills.items() if camvid_split(id) == split and id not in masks)
        skipped += skipped_stills + [path for id, path in stills.items() if camvid_split(id) is None]
        return Listing({id: FilePair(stills.get(id), masks[id]) for id in masks}, tuple(skipped), unmasked)


class SegNetCamVidData(FileData):
    """Reader of CamVid in the layout of SegNet's authors. An id is an image's name without extension."""

    palette = CAMVID_11_PALETTE

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(open_root(root, _EXPECTED), images)
        self.classes = Classes(CAMVID_11, background=False)
        values = np.array([*range(len(CAMVID_11)), IGNORE], np.uint16)
        hint = (
            f"expected 0 to {_SEGNET_IGNORE - 1}, and {_SEGNET_IGNORE} for ignored pixels: unpack SegNet's masks again."
        )
        self.coding = MaskCoding(len(CAMVID_11), values=values, hint=hint, listed_in="SegNet's CamVid")

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits with masks."""
        return tuple(split for split in SPLITS if os.path.isdir(self.root / f"{split}annot"))

    def list_split(self, split: str) -> Listing:
        """Pair {split}annot with {split}."""
        return list_pairs(self.root, split, f"{split}annot")


def open_camvid(root: str | Path, images: ImageReading = RGB) -> CamVidData | SegNetCamVidData:
    """Open CamVid in either layout."""
    folder = open_root(root, _EXPECTED)
    original = os.path.isdir(folder / LABELS)
    segnet = any(os.path.isdir(folder / f"{split}annot") for split in SPLITS)
    if original == segnet:
        found = f"holds both {LABELS}/ and SegNet's folders" if original else "is not CamVid"
        remedy = "set data.root to a folder with one of the two" if original else f"{_EXPECTED} in it"
        raise UserError(f"Data folder {folder} {found}; {remedy}.")
    return CamVidData(folder, images) if original else SegNetCamVidData(folder, images)


def camvid_split(id: str) -> str | None:
    """Return the usual split of an image by the name of its sequence and frame; None for other names."""
    if not (match := _FRAME.fullmatch(id)):
        return None
    sequence, frame = match[1], int(match[2])
    if sequence == "Seq05VD" or (sequence == "0001TP" and frame >= 8550):
        return "test"
    return "val" if sequence == "0016E5" and 7959 <= frame <= 8159 else "train"


class CamVidConfig(FileConfig):
    """CamVid, 11 classes."""

    name: Literal["camvid"] = "camvid"

    def open(self) -> CamVidData | SegNetCamVidData:
        """Open CamVid in either layout."""
        return open_camvid(self.required_root(), self.image_reading())


class CamVidReader(Reader):
    """CamVid, 11 classes."""

    Config = CamVidConfig
    summary = "CamVid street scenes, 11 classes, no background; the authors' files or SegNet's"
    layout = """\
701_StillsRaw_full/a.png, LabeledApproved_full/a_L.png
or {split}/a.png, {split}annot/a.png"""
