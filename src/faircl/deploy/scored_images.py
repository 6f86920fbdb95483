"""Images that a model is tested on, from any data set whose classes have the model's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faircl.data.label_index import LabelIndex, index_labels
from faircl.deploy.matched_data import Source, matched_index
from faircl.deploy.matching import Known, match_classes
from faircl.deploy.reader_settings import open_reader
from faircl.errors import UserError, listed
from faircl.progress import Reporter


@dataclass(frozen=True)
class ScoredImages:
    """The test split of a data set in a model's ids, and its pixels by these ids."""

    source: Source
    index: LabelIndex


def open_scored_images(
    known: Known, settings: Mapping[str, Any], same: Mapping[str, str], reporter: Reporter
) -> ScoredImages:
    """Open and count the test split of a data set, by the settings of its reader.

    Where the data does not name every class of the model, its unlabelled pixels may show one of the others: they are
    not scored. ``same`` says of names in the data which of the model's classes they are.
    """
    reader, data = open_reader(settings, "test")
    same = {name: target for name, target in same.items() if name in data.classes.names}
    matching = match_classes(known, data.classes, wanted=(), same=same)
    if not matching.known:
        names = [data.classes.names[id] for id in data.classes.foreground]
        raise UserError(
            f"The data names none of the model's classes: it has {listed(names)}, the model knows "
            f"{listed(known.names)}; name them alike, or say with --same which are the same."
        )
    missing = [known.classes.names[id] for id in known.foreground if id not in matching.known]
    if missing:
        reporter.say(
            f"note: the test data does not name {listed(missing)}; its unlabelled pixels may be of these, and are not "
            "scored"
        )
    table = matching.table(data.classes, matching.ignore if missing else None)
    index = index_labels(data, reader.test, reporter)
    return ScoredImages(Source(data, reader.test, index.ids, table), matched_index(index, table, matching))
