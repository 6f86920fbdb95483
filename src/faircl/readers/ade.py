"""ADE20K's scene parsing challenge, the tree ADEChallengeData2016.

images/{split}/x.jpg
annotations/{split}/x.png     0 is background, 1 to 150 are classes; there is no ignore value
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field

from faircl.data.file_data import FileData
from faircl.data.images import RGB, ImageReading
from faircl.data.listing import Listing, list_pairs, open_root, subfolders
from faircl.data.mask_coding import MaskCoding
from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.readers.base import FileConfig, Reader
from faircl.readers.catalog import ADE

_TREE = "ADEChallengeData2016"
_EXPECTED = f"expected {_TREE} with images/{{split}}/ and annotations/{{split}}/"
_HINT = (
    "these are not the original annotations, where 0 is background and no pixel is ignored: 255 is what 0 becomes "
    "if all ids are shifted down by one, as 'reduce_zero_label' does; unpack annotations/ again."
)


class AdeData(FileData):
    """Reader of ADEChallengeData2016. An id is the path below annotations/{split} without its extension."""

    def __init__(self, root: str | Path, images: ImageReading = RGB) -> None:
        super().__init__(_find(root), images)
        self.classes = Classes(ADE, background=True, background_is_named=False)
        self.coding = MaskCoding(len(ADE), has_ignore=False, hint=_HINT, listed_in="ADE20K")

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits with annotations, sorted."""
        return tuple(sorted(subfolders(self.root / "annotations")))

    def list_split(self, split: str) -> Listing:
        """Pair annotations/{split} with images/{split}."""
        return list_pairs(self.root, f"images/{split}", f"annotations/{split}")


class AdeConfig(FileConfig):
    """ADE20K, 150 classes."""

    name: Literal["ade"] = "ade"
    train: str = Field("training", description="split to train on")
    test: str = Field("validation", description="split to evaluate on")

    def open(self) -> AdeData:
        """Open the tree."""
        return AdeData(self.required_root(), self.image_reading())


class AdeReader(Reader):
    """ADE20K, 150 classes."""

    Config = AdeConfig
    summary = "ADE20K scene parsing, 150 classes; background is everything else"
    layout = """\
ADEChallengeData2016/images/{split}/a.jpg
ADEChallengeData2016/annotations/{split}/a.png"""
    tasks = ("100-50", "100-10", "100-5", "50-50", "offline")


def _find(root: str | Path) -> Path:
    given = open_root(root, _EXPECTED)
    for place in (given, given / _TREE):
        if os.path.isdir(place / "annotations"):
            return place
    raise UserError(f"Data folder {given} has no annotations; {_EXPECTED} in it.")
