"""Auxiliary maps: a mark per pixel of every training image, which some methods read beside the labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class AuxiliaryMaps(Protocol):
    """The maps of a data set; what a mark means is up to the method that asks for them."""

    def read(self, id: str, size: tuple[int, ...]) -> NDArray[np.uint16]:
        """Return the marked pixels (H, W) of an image of a size (H, W), 1 or 0."""
        ...

    def check(self, sizes: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        """Raise a UserError unless every image, given as id and size (H, W), has a map of that size."""
        ...
