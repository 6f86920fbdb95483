"""The interface of a reader: samples, class lists, splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from faircl.labels import Mask

Image = NDArray[np.uint8]  # (H, W, 3)


class Sample(NamedTuple):
    """One annotated image.

    Shapes: image (H, W, 3) uint8 RGB; mask (H, W) uint8 or uint16 of raw class ids; the largest value
    of the type means ignore.
    """

    id: str
    image: Image
    mask: Mask


@dataclass(frozen=True)
class Classes:
    """Class names by raw id.

    ``names[i]`` is the name of id ``i``. With a background class it is id 0 and ``names[0]`` is its name;
    without one, id 0 is an ordinary class. ``background_is_named`` is False if background means "not annotated"
    (ADE20K's label 0) rather than an annotated background (PASCAL VOC).
    """

    names: tuple[str, ...]
    background: bool
    background_is_named: bool = True

    @property
    def foreground(self) -> tuple[int, ...]:
        """Raw ids that can be learned in steps: all but the background."""
        return tuple(range(1 if self.background else 0, len(self.names)))


class SegmentationData(Protocol):
    """A reader of a data set; it gives raw ids, independent of steps."""

    classes: Classes

    def ids(self, split: str) -> Sequence[str]:
        """Return the image ids of a split, in the data set's own order."""
        ...

    def read(self, split: str, id: str) -> Sample:
        """Return image and mask of one id."""
        ...

    def read_mask(self, split: str, id: str) -> Mask:
        """Return the mask alone, for counting labels without decoding images."""
        ...
