"""Opening new data for a model: which classes are new, which images label them, and what to check the result on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from faircl.data.label_index import LabelIndex, index_labels
from faircl.data.sample import SegmentationData
from faircl.deploy.adding.request import Request, class_groups
from faircl.deploy.matched_data import Source, matched_index
from faircl.deploy.matching import Known, Matching, match_classes, resembling
from faircl.deploy.reader_settings import open_reader
from faircl.deploy.scored_images import ScoredImages, open_scored_images
from faircl.errors import UserError, listed
from faircl.integrity.verify import verify_images
from faircl.progress import Reporter
from faircl.readers.base import ReaderConfig
from faircl.scenario.from_config import report_skipped_files


@dataclass(frozen=True)
class NewImages:
    """Opened and counted new data, matched to a model's classes; ``images`` are those that label the new classes."""

    reader: ReaderConfig
    data: SegmentationData
    index: LabelIndex
    matching: Matching
    images: tuple[str, ...]
    then: tuple[tuple[str, ...], ...] = ()

    @property
    def source(self) -> Source:
        """The images as training images of the model."""
        matching = self.matching
        table = matching.table(self.data.classes)
        return Source(self.data, self.reader.train, self.images, table, matching.unlabelled)

    def label_index(self) -> LabelIndex:
        """Return the pixels of the images by the model's ids."""
        return matched_index(self.index.select(self.images), self.source.table, self.matching)


def open_new_images(known: Known, request: Request, reporter: Reporter) -> NewImages:
    """Open the new data of a request, count its classes and find those that the model does not know."""
    reader, data = open_reader(request.data)
    index = index_labels(data, reader.train, reporter)
    report_skipped_files(data, [reader.train], reporter)
    present = set(np.flatnonzero(index.pixels.any(0)).tolist())
    matching = match_classes(known, data.classes, wanted=request.classes, same=request.same, present=present)
    if not matching.new:
        names = [data.classes.names[id] for id in data.classes.foreground]
        every = match_classes(known, data.classes, same=request.same)
        empty = f" ({listed(every.names(every.new))} without a single pixel)" if every.new else ""
        raise UserError(
            f"The new data has no new class: the model knows {listed(known.names)}, the data names {listed(names)}"
            f"{empty}; label pixels of a new class and name it."
        )
    for name, other in resembling(known, matching):
        reporter.say(f"note: the new class '{name}' is spelled like '{other}', which is known; --same {name}={other}")
    _check_patterns(request, index, data)
    groups = class_groups(request, matching.names(matching.new), list(index.ids))
    (first, images), then = groups[0], tuple(members for members, _ in groups[1:])
    if then or request.labelled:
        matching = match_classes(known, data.classes, wanted=first, same=request.same, present=present)
    return NewImages(reader, data, index, matching, images, then + request.then)


def verify_sources(*sources: Source, reporter: Reporter) -> None:
    """Read every image once, so that a broken file is found before anything is trained."""
    for source in sources:
        verify_images(source.data, source.split, source.ids, reporter)


def open_holdout(known: Known, matching: Matching, request: Request, reporter: Reporter) -> ScoredImages:
    """Open the images that old and new classes are checked on; at least one old class must be there."""
    assert request.holdout is not None, "there is a holdout"
    everything = Known(matching.classes, (*known.learned, *matching.new))
    found = open_scored_images(everything, request.holdout, request.same, reporter)
    old = list(known.foreground)
    if not found.index.pixels[:, old].any():
        raise UserError(
            f"The holdout {_place(request.holdout)} shows none of the {len(old)} classes that the model knows "
            f"({listed([matching.classes.names[id] for id in old])}); give images that label old classes."
        )
    return found


def _check_patterns(request: Request, index: LabelIndex, data: SegmentationData) -> None:
    """Raise a UserError if a list of labelled classes names a class that the data does not have."""
    for pattern, names in request.labelled.items():
        unknown = [name for name in names if name not in data.classes.names]
        if unknown:
            raise UserError(
                f"The list of labelled classes of '{pattern}' names '{unknown[0]}', which the new data does not have; "
                f"it has: {listed([data.classes.names[id] for id in data.classes.foreground])}."
            )
        if not any(fnmatchcase(id, pattern) for id in index.ids):
            raise UserError(
                f"The pattern '{pattern}' of the labelled classes matches none of the {len(index.ids)} new images; "
                f"their ids are like '{index.ids[0]}'."
            )


def _place(settings: Mapping[str, Any]) -> str:
    return str(settings.get("root") or settings["name"])
