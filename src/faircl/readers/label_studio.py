"""Label Studio's export "JSON" of brush labels.

{split}.json         tasks with annotations, as exported; tasks.json, which was imported, is none
label-config.xml     the labeling interface, whose labels are the classes; may be missing
images/**/x.jpg      the images, or **/x.jpg
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import numpy as np
from pydantic import Field

from faircl.data.brush_rle import decode_region
from faircl.data.images import RGB, ImageReading
from faircl.data.listing import folder_names, open_root
from faircl.data.masks import MAX_UINT8_CLASSES
from faircl.data.raster_files import file_bytes
from faircl.data.sample import Classes, Sample
from faircl.errors import UserError, did_you_mean, listed
from faircl.labels import BACKGROUND, Mask
from faircl.readers.base import FileConfig, Reader
from faircl.readers.label_studio_json import LabelledTask, find_image, read_tasks

LABEL_CONFIG, TASKS = "label-config.xml", "tasks.json"
_BACKGROUND = "background"
_EXPECTED = "expected the export 'JSON' of a project, and its images in images/"


class LabelStudioData:
    """Reader of brush labels. An id is an image's path below images/, or below the root, without its extension.

    Pixels outside of all regions are background, id 0; of regions that overlap the later one counts. Classes are the
    labels of the labeling interface in their order, then others that the tasks use, sorted.
    """

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        self.root, self.images = open_root(root, _EXPECTED), images
        names = [name for name in folder_names(self.root) if name.lower().endswith(".json") and name != TASKS]
        if not names:
            raise UserError(f"Data folder {self.root} has no JSON file beside {TASKS}; {_EXPECTED}.")
        self._tasks = {os.path.splitext(name)[0]: read_tasks(self.root / name) for name in names}
        used = {region.label for tasks in self._tasks.values() for task in tasks for region in task.regions}
        labels = [*(ordered := _labels(self.root / LABEL_CONFIG)), *sorted(used - set(ordered))]
        foreground = [label for label in labels if label.lower() != _BACKGROUND]
        self.classes = Classes((_BACKGROUND, *foreground), background=True)
        self._ids = dict.fromkeys(labels, BACKGROUND) | {label: id for id, label in enumerate(foreground, 1)}
        self._found: dict[str, dict[str, tuple[LabelledTask, Path]]] = {}

    def splits(self) -> tuple[str, ...]:
        """Return the names of the JSON files, sorted."""
        return tuple(sorted(self._tasks))

    def ids(self, split: str) -> Sequence[str]:
        """Return the ids of the annotated tasks of a split, in the file's order."""
        return tuple(self._images(split))

    def image_path(self, split: str, id: str) -> Path:
        """Return the path of an id's image."""
        return self._entry(split, id)[1]

    def read(self, split: str, id: str) -> Sample:
        """Return image (H, W, 3) and mask (H, W) of one id; their sizes are checked."""
        path = self.image_path(split, id)
        image, mask = self.images.read(path), self.read_mask(split, id)
        if image.shape[:2] != mask.shape:
            (high, wide), (mask_high, mask_wide) = image.shape[:2], mask.shape
            raise UserError(
                f"The task of image {path} in {self.root / split}.json is of {mask_wide}x{mask_high} pixels, but the "
                f"image is {wide}x{high} (width x height); put the image there that was labelled."
            )
        return Sample(id, image, mask)

    def read_mask(self, split: str, id: str) -> Mask:
        """Return the mask (H, W) of one id."""
        task, path = self._entry(split, id)
        height, width = task.size or self.images.read(path).shape[:2]  # without regions the JSON has no size
        small = len(self.classes.names) <= MAX_UINT8_CLASSES
        mask = np.full((height, width), BACKGROUND, np.uint8 if small else np.uint16)
        for region in task.regions:
            try:
                mask[decode_region(region.code, height, width)] = self._ids[region.label]
            except ValueError as error:
                raise UserError(
                    f"A region '{region.label}' of image {path} in {self.root / split}.json cannot be decoded: "
                    f"{error}; export the project again."
                ) from None
        return mask

    def _entry(self, split: str, id: str) -> tuple[LabelledTask, Path]:
        if id not in (found := self._images(split)):
            raise UserError(f"No annotated image '{id}' in {self.root / split}.json; ids are paths without extension.")
        return found[id]

    def _images(self, split: str) -> dict[str, tuple[LabelledTask, Path]]:
        """Return tasks and images of a split by id."""
        if split in self._found:
            return self._found[split]
        if split not in self._tasks:
            raise UserError(
                f"Data folder {self.root} has no {split}.json.{did_you_mean(split, self._tasks)} It has: "
                f"{listed([f'{name}.json' for name in self.splits()])}; name one in data.train."
            )
        found: dict[str, tuple[LabelledTask, Path]] = {}
        for task in self._tasks[split]:
            path = find_image(self.root, task)
            below = path.relative_to(self.root).with_suffix("").as_posix()
            id = below.removeprefix("images/")
            if id in found:
                raise UserError(f"Two annotated tasks of {self.root / split}.json are of image {path}; remove one.")
            found[id] = task, path
        if not found:
            raise UserError(
                f"{self.root / split}.json has no annotated task; submit annotations in Label Studio and export again."
            )
        self._found[split] = found
        return found


def _labels(path: Path) -> list[str]:
    """Return the labels of a labeling interface; none if there is no such file."""
    if not os.path.isfile(path):
        return []
    try:
        tree = ElementTree.fromstring(file_bytes(path, "labeling interface"))
    except ElementTree.ParseError as error:
        raise UserError(f"Cannot read {path}: {error}; copy the labeling interface again.") from None
    return list(dict.fromkeys(name for tag in tree.iter("Label") if (name := tag.get("value"))))


class LabelStudioConfig(FileConfig):
    """An export of Label Studio, "JSON", with brush labels."""

    name: Literal["label-studio"] = "label-studio"
    train: str = Field("train", description="JSON file to train on, without extension")
    test: str = Field("test", description="JSON file to evaluate on, without extension")

    def open(self) -> LabelStudioData:
        """Open the export."""
        return LabelStudioData(self.required_root(), self.image_reading())


class LabelStudioReader(Reader):
    """An export of Label Studio."""

    Config = LabelStudioConfig
    summary = 'an export of Label Studio, "JSON", with brush labels and its own classes'
    layout = """\
{split}.json
label-config.xml
images/…/a.jpg"""
