"""A data set seen with the classes of a network, matched by name."""

from __future__ import annotations

from faircl.data.file_data import FileData
from faircl.data.masks import colour_names
from faircl.data.sample import Classes, SegmentationData
from faircl.deploy.matched_data import MatchedData, Source
from faircl.deploy.matching import Known, match_classes
from faircl.errors import UserError, listed
from faircl.labels import BACKGROUND


class NetworkData(MatchedData):
    """A data set whose masks hold the ids of a network's classes.

    Pixels of other classes are ignored. So is the data's background unless the data names every class of the network:
    otherwise it may hide one of those. ``unknown`` are classes of the data that the network does not have, ``missing``
    those of the network that the data does not have.
    """

    def __init__(self, data: SegmentationData, classes: Classes, splits: tuple[str, ...]) -> None:
        known = Known(classes, tuple(range(len(classes.names))))
        self.matching, self.data = match_classes(known, data.classes, wanted=()), data
        if not self.matching.known:
            raise UserError(
                f"The data and the network have no class in common: the data has {listed(data.classes.names)}, the "
                f"network {listed(classes.names)}; give data with classes of the network, or the right names with "
                "--classes."
            )
        foreground = data.classes.foreground
        self.unknown = tuple(data.classes.names[id] for id in foreground if self.matching.ids[id] is None)
        self.missing = tuple(classes.names[id] for id in known.foreground if id not in self.matching.known)
        table = self.matching.table(data.classes, self.matching.ignore)
        if data.classes.background and classes.background and not self.missing:
            table[BACKGROUND] = BACKGROUND
        super().__init__(classes, {split: Source(data, split, tuple(data.ids(split)), table) for split in splits})

    def colours(self) -> tuple[str, ...]:
        """Return the data's own colours of the network's classes, "#rrggbb" by id; none if one has no colour."""
        palette = self.data.palette if isinstance(self.data, FileData) else None
        if palette is None or self.missing:
            return ()
        place = {id: number for number, id in enumerate(self.matching.ids) if id is not None}
        places = [place.get(id, BACKGROUND) for id in range(len(self.classes.names))]
        return tuple(colour_names(palette[places]))
