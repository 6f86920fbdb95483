"""Suggested labels for CVAT: images of a task, its labels, and annotations in the format "Segmentation mask 1.1".

images/**/x.jpg      the images of the task
labels.json          its labels, for the tab "Raw" of a new task
annotations.zip      labelmap.txt, ImageSets/Segmentation/default.txt, SegmentationClass/ and SegmentationObject/
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.masks import colour_names, voc_palette
from faircl.deploy.review.classes import BLACK, ReviewClasses
from faircl.deploy.review.images import NewImage, save_image
from faircl.labels import BACKGROUND, Mask
from faircl.readers.cvat import LABELMAP, LISTS, MASKS

_ANNOTATIONS = "annotations"
_OBJECTS = "SegmentationObject"
_BACKGROUND = "background"
"""CVAT's own name of unlabelled pixels, which are black."""


class CvatReview:
    """Writes a class mask in the classes' colours and an object mask, in which every class of an image is one object.

    Pixels that are background, ignored or unlabelled are black in both: CVAT makes no annotation of them.
    """

    def __init__(self, root: Path, classes: ReviewClasses) -> None:
        classes.check_names(starts="#", holds=":")
        self.root, self.files, self.classes = root, root / _ANNOTATIONS, classes
        self.ids: list[str] = []
        self.palette = np.array([*classes.colours, BLACK], np.uint8)
        labels = [
            {"name": name, "color": colour_names(self.palette[id : id + 1])[0], "attributes": []}
            for id, name in classes.labels.items()
        ]
        (root / "labels.json").write_text(json.dumps(labels, indent=1, ensure_ascii=False), encoding="utf-8")

    def add(self, image: NewImage, mask: Mask) -> None:
        """Write an image and its mask (H, W)."""
        save_image(image, self.root / "images")
        none = len(self.classes.colours)  # the last row of the palette
        unlabelled = mask >= none
        if self.classes.classes.background:
            unlabelled |= mask == BACKGROUND
        labels = np.where(unlabelled, none, mask.astype(np.int64))
        present, objects = np.unique(labels, return_inverse=True)
        numbers = np.where(present == none, 0, np.arange(1, len(present) + 1))
        self._write(f"{MASKS}/{image.id}.png", self.palette[labels])
        colours = voc_palette(max(256, len(present) + 1))  # by which CVAT tells objects apart
        self._write(f"{_OBJECTS}/{image.id}.png", colours[numbers[objects.reshape(mask.shape)]])
        self.ids.append(image.id)

    def finish(self) -> None:
        """Write the list of images and the colours of the labels, and pack the annotations."""
        rows = [(_BACKGROUND, BLACK)]
        rows += [(name, self.classes.colours[id]) for id, name in self.classes.labels.items()]
        lines = [f"{name}:{red},{green},{blue}::\n" for name, (red, green, blue) in rows]
        (self.files / LABELMAP).write_text("# label:color_rgb:parts:actions\n" + "".join(lines), encoding="utf-8")
        (self.files / LISTS).mkdir(parents=True)
        (self.files / LISTS / "default.txt").write_text("".join(f"{id}\n" for id in self.ids), encoding="utf-8")
        shutil.make_archive(str(self.files), "zip", self.files)
        shutil.rmtree(self.files)

    def _write(self, name: str, colours: NDArray[np.uint8]) -> None:
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(colours).save(path)
