"""What is scored: the evaluation conventions of published tables, by name.

They differ in five things, and each moves a mean IoU:

- ``images``: all test images, or those that show a class seen so far (background not counted).
- ``crop``: every pixel at the image's own size, or a centre crop after resizing the short side.
- ``future``: pixels of classes still to come are background, or not counted. Without a background class they are
  never counted.
- ``unnamed_background``: whether ADE20K's label 0, which means "not one of the 150", is scored as a class. Background
  that annotators meant, as in Pascal VOC, always is.
- void is never counted, and a class without a truth pixel is left out of every mean, whatever was predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ConventionName = Literal["full", "plop", "mib"]


@dataclass(frozen=True)
class Convention:
    """One way to score; see the module."""

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
