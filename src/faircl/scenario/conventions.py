"""Evaluation conventions of published tables: which images and pixels are scored.

They differ in these points, each of which changes a mean IoU:

- ``seen_images_only``: all test images, or those that contain a class seen so far (background not counted).
- ``crop``: every pixel at the image's own size, or a centre crop after the short side is resized.
- ``future``: pixels of classes of later steps count as background, or are ignored. Without a background class they
  are always ignored.
- ``unnamed_background``: whether ADE20K's label 0, "none of the 150 classes", is scored as a class. An annotated
  background, as in PASCAL VOC, always is.

Under all of them ignored pixels are not counted, and a class without ground-truth pixels is left out of every mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ConventionName = Literal["full", "plop", "mib"]
EvaluatedImages = Literal["test", "validation"]
EVALUATED_IMAGES: tuple[EvaluatedImages, ...] = ("test", "validation")


@dataclass(frozen=True)
class Convention:
    """One evaluation convention; see the module's docstring."""

    name: ConventionName
    seen_images_only: bool
    crop: bool
    future: Literal["background", "ignore"]
    unnamed_background: bool
    summary: str


FULL = Convention(
    "full", False, False, "background", True, "every pixel of every test image at its own size; future is background"
)
PLOP = Convention(
    "plop", True, True, "background", True, "centre crops of images with a seen class; future is background"
)
MIB = Convention(
    "mib", True, True, "ignore", False, "centre crops of images with a seen class; future and ADE20K's 0 not counted"
)
CONVENTIONS: dict[ConventionName, Convention] = {one.name: one for one in (FULL, PLOP, MIB)}
