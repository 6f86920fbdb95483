"""What flows out of a reader: one image, its mask in the data set's own ids, and the list of classes."""

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

    Shapes: image (H, W, 3) uint8 RGB; mask (H, W) uint8 or uint16 of raw class ids, its largest value being void.
    """

    id: str
    image: Image
    mask: Mask


@dataclass(frozen=True)
class Classes:
    """Class names by raw id.

    ``names[i]`` is the name of id ``i``. With a background class it is id 0 and ``names[0]`` is its name;
    without one, id 0 is an ordinary class. ``background_is_named`` is False where background is what nobody has named
    (ADE20K's label 0) rather than something that annotators meant (Pascal VOC's).
    """

    names: tuple[str, ...]
    background: bool
    background_is_named: bool = True

    @property
    def foreground(self) -> tuple[int, ...]:
        """Raw ids that can be learned in steps: all but the background."""
        return tuple(range(1 if self.background else 0, len(self.names)))


class SegmentationData(Protocol):
    """A reader: it knows files and ids, and nothing of steps, networks or methods."""

    classes: Classes

    def ids(self, split: str) -> Sequence[str]:
        """Image ids of a split, in the data set's own order."""
        ...

    def read(self, split: str, id: str) -> Sample:
        """Image and mask of one id."""
        ...

    def read_mask(self, split: str, id: str) -> Mask:
        """Mask alone, for scanning labels without decoding images."""
        ...
