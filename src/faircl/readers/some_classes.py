"""A data set that labels some of its classes alone; all other pixels are background."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faircl.data.sample import Classes, Sample, SegmentationData
from faircl.errors import UserError, unknown_name
from faircl.labels import Mask, ignore_value


class SomeClasses:
    """Data with a background of which only the classes ``names`` are labelled, with ids in that order."""

    def __init__(self, data: SegmentationData, names: Sequence[str]) -> None:
        if not data.classes.background:
            raise UserError("Only data with a background class can leave classes unlabelled.")
        foreground = {data.classes.names[id]: id for id in data.classes.foreground}
        for name in names:
            if name not in foreground:
                raise unknown_name("class", name, list(foreground))
        if not names or len(set(names)) < len(names):
            raise UserError(f"Classes to label are one or more different names; found {', '.join(names) or 'none'}.")
        self.data, self.classes = data, Classes((data.classes.names[0], *names), background=True)
        self._ids = np.zeros(65536, np.uint16)
        self._ids[[foreground[name] for name in names]] = range(1, len(names) + 1)

    def ids(self, split: str) -> Sequence[str]:
        """Return the image ids of a split."""
        return self.data.ids(split)

    def read(self, split: str, id: str) -> Sample:
        """Return image and mask of one id."""
        sample = self.data.read(split, id)
        return sample._replace(mask=self._some(sample.mask))

    def read_mask(self, split: str, id: str) -> Mask:
        """Return the mask alone."""
        return self._some(self.data.read_mask(split, id))

    def _some(self, mask: Mask) -> Mask:
        ignore = ignore_value(mask)
        ids = np.where(mask == ignore, ignore, self._ids[mask])
        return ids.astype(np.uint8) if ignore == 255 else ids.astype(np.uint16)
