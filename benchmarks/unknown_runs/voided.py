"""Data whose held-out classes are void: nothing in a training mask says what they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faircl.data.sample import Sample, SegmentationData
from faircl.errors import UserError, unknown_name
from faircl.labels import Mask


class VoidedData:
    """A data set whose pixels of some classes are ignored; its images and class list are those of the data set."""

    def __init__(self, data: SegmentationData, held_out: Sequence[str]) -> None:
        self.data, self.classes = data, data.classes
        self.held_out = class_ids(data, held_out)

    def ids(self, split: str) -> Sequence[str]:
        return self.data.ids(split)

    def read(self, split: str, id: str) -> Sample:
        sample = self.data.read(split, id)
        return sample._replace(mask=self._void(sample.mask))

    def read_mask(self, split: str, id: str) -> Mask:
        return self._void(self.data.read_mask(split, id))

    def _void(self, mask: Mask) -> Mask:
        void = np.array(np.iinfo(mask.dtype).max, mask.dtype)
        return np.where(np.isin(mask, self.held_out), void, mask)


def class_ids(data: SegmentationData, names: Sequence[str]) -> list[int]:
    """Return the raw ids of classes that can be held out."""
    known = [data.classes.names[id] for id in data.classes.foreground]
    for name in names:
        if name not in known:
            raise unknown_name("class", name, known)
    if len(set(names)) == len(known):
        raise UserError("All classes are held out; leave some to train on.")
    return [data.classes.names.index(name) for name in names]
