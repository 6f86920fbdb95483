"""Data sets read in a model's class ids: new images, and the images that a model is checked on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes, Sample, SegmentationData
from faircl.deploy.matching import Matching, apply_matching
from faircl.labels import BACKGROUND, Mask

TRAIN, TEST = "train", "test"


@dataclass(frozen=True)
class Source:
    """A split of a data set, the ids of some of its images, and the table from its mask values to a model's ids.

    ``unlabelled`` is what the table gives to pixels of no class.
    """

    data: SegmentationData
    split: str
    ids: tuple[str, ...]
    table: NDArray[np.uint16]
    unlabelled: int = BACKGROUND


class MatchedData:
    """Splits of several data sets as one, with masks in the ids of a model; a `SegmentationData`."""

    def __init__(self, classes: Classes, sources: Mapping[str, Source]) -> None:
        self.classes, self.sources = classes, dict(sources)

    def ids(self, split: str) -> Sequence[str]:
        """Return the image ids of a split."""
        return self.sources[split].ids

    def read(self, split: str, id: str) -> Sample:
        """Return image and mask of one id."""
        source = self.sources[split]
        sample = source.data.read(source.split, id)
        return sample._replace(mask=self._matched(source, sample.mask))

    def read_mask(self, split: str, id: str) -> Mask:
        """Return the mask alone."""
        source = self.sources[split]
        return self._matched(source, source.data.read_mask(source.split, id))

    def _matched(self, source: Source, mask: Mask) -> Mask:
        return apply_matching(source.table, mask, len(self.classes.names))


def matched_index(index: LabelIndex, table: NDArray[np.uint16], matching: Matching) -> LabelIndex:
    """Return the pixel counts of a data set by the ids of a model; pixels that become none of them are not counted."""
    pixels = np.zeros((len(index.ids), len(matching.classes.names)), np.int64)
    targets = table[: index.pixels.shape[1]]
    counted = targets < pixels.shape[1]
    np.add.at(pixels.T, targets[counted], index.pixels[:, counted].T)
    return replace(index, pixels=pixels)
