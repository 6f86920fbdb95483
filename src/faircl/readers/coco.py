"""COCO's panoptic annotations, and COCO-Stuff's maps of things and stuff.

annotations/panoptic_{split}.json and annotations/panoptic_{split}/x.png, or panoptic_{split}/x.png
stuffthingmaps/{split}/x.png or annotations/{split}/x.png
{split}/x.jpg or images/{split}/x.jpg
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from faircl.data.colour_masks import read_colours
from faircl.data.file_data import FileData
from faircl.data.images import RGB, ImageReading
from faircl.data.listing import (
    IMAGE_SUFFIXES,
    MASK_SUFFIXES,
    FilePair,
    Listing,
    find_files,
    first_existing_folder,
    folder_names,
    list_pairs,
    open_root,
    subfolders,
)
from faircl.data.mask_coding import UNKNOWN, MaskCoding, MaskCounts
from faircl.data.masks import MAX_UINT8_CLASSES
from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.labels import IGNORE, Mask
from faircl.readers.base import FileConfig, Reader
from faircl.readers.catalog import COCO_STUFF
from faircl.readers.panoptic_json import read_annotations, read_categories, read_json

_PANOPTIC = "expected annotations/panoptic_{split}.json with its PNGs, and images in {split}/"
_STUFF = "expected stuffthingmaps/{split}/ or annotations/{split}/, and images in {split}/"
_TRAIN_IDS = "_labelTrainIds"  # masks that another library writes beside the original ones


class _Runs(NamedTuple):
    """A run-length encoded mask, row by row: classes (R,) and lengths (R,) of the runs, height and width."""

    classes: NDArray[np.int64]
    lengths: NDArray[np.int64]
    size: tuple[int, int]


class CocoPanopticData(FileData):
    """Reader of panoptic annotations; classes are the categories in order of their ids.

    A mask's colours are segment ids, R + 256·G + 65536·B; the JSON gives the category of each; segment 0 is ignored.
    An id is the path of a PNG without extension, in the order of the JSON. The constructor reads only the smallest
    JSON.
    """

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(open_root(root, _PANOPTIC), images)
        jsons = [self._json(split) for split in self.splits()]
        if not jsons:
            raise UserError(f"Data folder {self.root} has no annotations/panoptic_{{split}}.json; {_PANOPTIC}.")
        smallest = min(jsons, key=lambda path: (os.path.getsize(path), path))
        self._categories = read_categories(read_json(smallest), smallest)
        self.classes = Classes(tuple(self._categories.values()), background=False)
        self.coding = MaskCoding(len(self._categories), listed_in=smallest.name)
        # Segments of each image by split and id: pairs of segment id and class, sorted, as little-endian uint32.
        self._segments: dict[str, dict[str, bytes]] = {}

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits with a JSON."""
        folder = self.root / "annotations"
        names = (name for name in folder_names(folder) if os.path.isfile(folder / name))
        matches = (re.fullmatch(r"panoptic_(.+)\.json", name) for name in names)
        return tuple(match[1] for match in matches if match)

    def list_split(self, split: str) -> Listing:
        """Find the masks and images of a JSON's annotations."""
        path = self._json(split)
        tree = read_json(path)
        if read_categories(tree, path) != self._categories:
            raise UserError(f"{path} has other categories than the split beside it; both must have the same.")
        mask_folder = first_existing_folder(self.root, f"annotations/panoptic_{split}", f"panoptic_{split}")
        masks, skipped = find_files(self.root, mask_folder, MASK_SUFFIXES)
        images, skipped_images = find_files(self.root, _image_folder(self.root, split), IMAGE_SUFFIXES)
        annotations = read_annotations(tree, path, {category: place for place, category in enumerate(self._categories)})
        unmasked = tuple(images.get(image, image) for id, (image, _) in annotations.items() if id not in masks)
        files = {id: FilePair(images.get(image), masks[id]) for id, (image, _) in annotations.items() if id in masks}
        self._segments[split] = {id: segments for id, (_, segments) in annotations.items()}
        named = {image for image, _ in annotations.values()}
        skipped += skipped_images + [masks[id] for id in masks if id not in annotations]
        skipped += [path for id, path in images.items() if id not in named]
        return Listing(files, tuple(skipped), unmasked)

    def label_key(self, split: str, id: str) -> str:
        """Return the cache key of a mask's labels, with the categories of its segments."""
        return f"{self.coding.fingerprint}/panoptic/{self._segments_of(split, id).hex()}"

    def decode_mask(self, split: str, id: str, data: bytes) -> Mask:
        """Return class ids (H, W) of a mask file's bytes."""
        runs = self._runs(split, id, data)
        ignored = runs.classes == len(self._categories)
        ids = np.repeat(np.where(ignored, np.uint16(IGNORE), runs.classes.astype(np.uint16)), runs.lengths)
        mask = ids.reshape(runs.size)
        # The cast turns IGNORE into 255.
        return mask.astype(np.uint8) if len(self._categories) <= MAX_UINT8_CLASSES else mask

    def count_mask(self, split: str, id: str, data: bytes) -> MaskCounts:
        """Count the classes of a mask file's bytes."""
        runs = self._runs(split, id, data)
        counts = np.bincount(runs.classes, runs.lengths, minlength=len(self._categories) + 1).astype(np.int64)
        return MaskCounts(counts[:-1], int(counts[-1]), runs.size)

    def _runs(self, split: str, id: str, data: bytes) -> _Runs:
        """Return the class of every run of equal segment ids; the number of classes stands for ignore."""
        path = self.mask_path(split, id)
        rgb = read_colours(data, path).astype(np.uint32)
        segments = (rgb[..., 0] | rgb[..., 1] << 8 | rgb[..., 2] << 16).ravel()
        ends = np.append(np.flatnonzero(segments[1:] != segments[:-1]), len(segments) - 1)
        lengths, values = np.diff(ends, prepend=-1), segments[ends]
        pairs = np.frombuffer(self._segments_of(split, id), "<u4").reshape(-1, 2)
        known = np.append(np.uint32(0), pairs[:, 0])
        classes = np.append(len(self._categories), pairs[:, 1].astype(np.int64))
        at = np.minimum(np.searchsorted(known, values), len(known) - 1)
        if (unknown := known[at] != values).any():
            first = int(values[unknown][0])
            raise UserError(
                f"Mask {path} has segment {first} in {lengths[values == first].sum()} pixels, but the JSON lists no "
                "such segment for it; unpack the PNGs and the JSON of one release."
            )
        return _Runs(classes[at], lengths, (rgb.shape[0], rgb.shape[1]))

    def _segments_of(self, split: str, id: str) -> bytes:
        self._files(split, id)  # lists the split; raises an error for an unknown id
        return next(self._segments[part][id] for part in split.split("+") if id in self._segments[part])

    def _json(self, split: str) -> Path:
        return self.root / "annotations" / f"panoptic_{split}.json"


class CocoStuffData(FileData):
    """Reader of COCO-Stuff: value v is category v + 1, 255 is ignored.

    Classes are the 171 categories that are used, in order of their ids. An id is a mask's path without extension.
    """

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(open_root(root, _STUFF), images)
        self._folder = first_existing_folder(self.root, "stuffthingmaps", "annotations")
        if not os.path.isdir(self.root / self._folder):
            raise UserError(f"Data folder {self.root} has no stuffthingmaps and no annotations; {_STUFF}.")
        self.classes = Classes(tuple(COCO_STUFF[id] for id in sorted(COCO_STUFF)), background=False)
        values = np.full(max(COCO_STUFF), UNKNOWN, np.uint16)
        values[np.array(sorted(COCO_STUFF)) - 1] = np.arange(len(COCO_STUFF))
        hint = "expected stuffthingmaps as published, ids less one: unpack them again."
        self.coding = MaskCoding(len(COCO_STUFF), values=values, hint=hint, listed_in="COCO-Stuff")

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits with masks, sorted."""
        folders = subfolders(self.root / self._folder)
        return tuple(sorted(name for name in folders if not name.startswith("panoptic_")))

    def list_split(self, split: str) -> Listing:
        """Pair the masks with the images; masks in train ids are skipped."""
        listed = list_pairs(self.root, _image_folder(self.root, split), f"{self._folder}/{split}")
        files = {id: pair for id, pair in listed.files.items() if not id.endswith(_TRAIN_IDS)}
        others = [pair.mask for id, pair in listed.files.items() if id not in files]
        return Listing(files, (*listed.skipped, *others), listed.unmasked)


def _image_folder(root: Path, split: str) -> str:
    return first_existing_folder(root, split, f"images/{split}")


class _CocoConfig(FileConfig):
    train: str = Field("train2017", description="split to train on")
    test: str = Field("val2017", description="split to evaluate on")


class CocoPanopticConfig(_CocoConfig):
    """COCO's panoptic annotations."""

    name: Literal["coco-panoptic"] = "coco-panoptic"

    def open(self) -> CocoPanopticData:
        """Open the annotations."""
        return CocoPanopticData(self.required_root(), self.image_reading())


class CocoStuffConfig(_CocoConfig):
    """COCO-Stuff's maps."""

    name: Literal["coco-stuff"] = "coco-stuff"

    def open(self) -> CocoStuffData:
        """Open the maps."""
        return CocoStuffData(self.required_root(), self.image_reading())


class CocoPanopticReader(Reader):
    """COCO's panoptic annotations."""

    Config = CocoPanopticConfig
    summary = "COCO panoptic, its categories of things and stuff; no background"
    layout = """\
annotations/panoptic_{split}.json
annotations/panoptic_{split}/a.png
{split}/a.jpg"""


class CocoStuffReader(Reader):
    """COCO-Stuff's maps."""

    Config = CocoStuffConfig
    summary = "COCO-Stuff, 171 classes of things and stuff; no background"
    layout = """\
stuffthingmaps/{split}/a.png
{split}/a.jpg"""
