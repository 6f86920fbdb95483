"""Suggested labels for Label Studio: tasks with brush predictions, and the labeling interface.

images/**/x.jpg      the images, to be served by Label Studio as local files
label-config.xml     the labeling interface, for the tab "Code"
tasks.json           tasks to import
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np

from faircl.data.brush_rle import encode_region
from faircl.data.masks import colour_names
from faircl.deploy.review.classes import ReviewClasses
from faircl.deploy.review.images import NewImage, save_image
from faircl.labels import Mask
from faircl.readers.label_studio import LABEL_CONFIG, TASKS

_LABELS, _IMAGE = "label", "image"  # names of the two tags


class LabelStudioReview:
    """Writes a prediction per image, a brush region for every class in it; other pixels belong to no region.

    ``place`` is the name of the folder that will hold the files, which Label Studio finds the images below.
    """

    def __init__(self, root: Path, classes: ReviewClasses, place: str, model: str) -> None:
        classes.check_names()
        self.root, self.classes, self.place, self.model = root, classes, place, model
        self.count = 0
        view = ElementTree.Element("View")
        ElementTree.SubElement(view, "Image", name=_IMAGE, value=f"${_IMAGE}", zoom="true")
        labels = ElementTree.SubElement(view, "BrushLabels", name=_LABELS, toName=_IMAGE)
        for id, name in classes.labels.items():
            colour = colour_names(np.array([classes.colours[id]], np.uint8))[0]
            ElementTree.SubElement(labels, "Label", value=name, background=colour)
        ElementTree.indent(view)
        (root / LABEL_CONFIG).write_text(ElementTree.tostring(view, encoding="unicode") + "\n", encoding="utf-8")

    def add(self, image: NewImage, mask: Mask) -> None:
        """Write an image and the regions of its mask (H, W)."""
        path = save_image(image, self.root / "images")
        inside = f"{self.place}/{path.relative_to(self.root).as_posix()}"
        regions = [self._region(mask, id) for id in np.unique(mask).tolist() if id in self.classes.labels]
        task = {
            "data": {_IMAGE: f"/data/local-files/?d={quote(inside)}"},
            "predictions": [{"model_version": self.model, "result": regions}],
        }
        self._append(("[\n" if self.count == 0 else ",\n") + json.dumps(task, ensure_ascii=False))
        self.count += 1

    def finish(self) -> None:
        """Close the list of tasks."""
        self._append("\n]\n")

    def _append(self, text: str) -> None:
        with open(self.root / TASKS, "a", encoding="utf-8") as file:
            file.write(text)

    def _region(self, mask: Mask, id: int) -> dict[str, Any]:
        value = {"format": "rle", "rle": list(encode_region(mask == id)), "brushlabels": [self.classes.labels[id]]}
        return {
            "id": f"{self.count + 1}-{id}",
            "type": "brushlabels",
            "from_name": _LABELS,
            "to_name": _IMAGE,
            "original_width": mask.shape[1],
            "original_height": mask.shape[0],
            "image_rotation": 0,
            "value": value,
        }
