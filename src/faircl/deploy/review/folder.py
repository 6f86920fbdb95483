"""Suggested labels in the folder layout: images/train, masks/train and classes.txt."""

from __future__ import annotations

from pathlib import Path

from faircl.data.masks import write_mask
from faircl.deploy.review.classes import ReviewClasses
from faircl.deploy.review.images import NewImage, save_image
from faircl.labels import Mask
from faircl.readers.folder import CLASSES_FILE

_SPLIT = "train"


class FolderReview:
    """Writes masks as index PNGs in the model's ids; line k of classes.txt is class k, with its colour."""

    def __init__(self, root: Path, classes: ReviewClasses) -> None:
        classes.check_names(starts="#")
        self.root, self.palette = root, classes.palette()
        rows = zip(classes.classes.names, classes.colours, strict=True)
        text = "".join(f"{name} {red} {green} {blue}\n" for name, (red, green, blue) in rows)
        (root / CLASSES_FILE).write_text(text, encoding="utf-8")

    def add(self, image: NewImage, mask: Mask) -> None:
        """Write an image and its mask (H, W)."""
        save_image(image, self.root / "images" / _SPLIT)
        path = self.root / "masks" / _SPLIT / f"{image.id}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_mask(path, mask, self.palette)

    def finish(self) -> None:
        """Nothing is left to be written."""
