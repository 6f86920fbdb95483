"""A data set seen with the classes of a network, matched by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from faircl.data.file_data import FileData
from faircl.data.masks import MAX_UINT8_CLASSES, colour_names
from faircl.data.sample import Classes, Sample, SegmentationData
from faircl.errors import UserError, listed
from faircl.labels import BACKGROUND, IGNORE, Mask


class Match(NamedTuple):
    """Id of the network's class for every id of the data, None where it has none; and the classes that lack a match."""

    ids: tuple[int | None, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]


def match_classes(data: Classes, network: Classes) -> Match:
    """Match classes by name; the background of one is that of the other, whatever it is called.

    ``unknown`` are classes of the data that the network does not have, ``missing`` those of the network that the data
    does not have.
    """
    own = {name: id for id, name in enumerate(network.names)}
    ids = [own.get(name) for name in data.names]
    if data.background and network.background:
        ids[BACKGROUND] = BACKGROUND
    known = {id for id in ids if id is not None}
    unknown = tuple(name for name, id in zip(data.names, ids, strict=True) if id is None)
    missing = tuple(name for id, name in enumerate(network.names) if id not in known)
    if not known - ({BACKGROUND} if network.background else set()):
        raise UserError(
            f"The data and the network have no class in common: the data has {listed(data.names)}, the network "
            f"{listed(network.names)}; give data with classes of the network, or the right names with --classes."
        )
    return Match(tuple(ids), unknown, missing)


class MatchedData:
    """A data set whose masks hold the ids of a network's classes; pixels of its other classes are ignored."""

    def __init__(self, data: SegmentationData, classes: Classes) -> None:
        self.data, self.classes, self.match = data, classes, match_classes(data.classes, classes)

    def ids(self, split: str) -> Sequence[str]:
        """Return the image ids of a split."""
        return self.data.ids(split)

    def read(self, split: str, id: str) -> Sample:
        """Return image and mask of one id."""
        sample = self.data.read(split, id)
        return sample._replace(mask=self._matched(sample.mask))

    def read_mask(self, split: str, id: str) -> Mask:
        """Return the mask alone."""
        return self._matched(self.data.read_mask(split, id))

    def colours(self) -> tuple[str, ...]:
        """Return the data's own colours of the network's classes, "#rrggbb" by id; none if one has no colour."""
        palette = self.data.palette if isinstance(self.data, FileData) else None
        if palette is None or self.match.missing:
            return ()
        place = {id: number for number, id in enumerate(self.match.ids) if id is not None}
        return tuple(colour_names(palette[[place[id] for id in range(len(self.classes.names))]]))

    def _matched(self, mask: Mask) -> Mask:
        table = np.full(np.iinfo(mask.dtype).max + 1, IGNORE, np.uint16)
        table[: len(self.match.ids)] = [IGNORE if id is None else id for id in self.match.ids]
        matched = table[mask]
        # The ignore value is the largest of the type, so that of 16 bits becomes that of 8.
        return matched.astype(np.uint8) if len(self.classes.names) <= MAX_UINT8_CLASSES else matched
