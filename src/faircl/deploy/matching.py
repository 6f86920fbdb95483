"""Matching the classes of new data to those of a model, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from faircl.data.masks import MAX_UINT8_CLASSES
from faircl.data.sample import Classes
from faircl.deploy.class_names import plain_name as _plain
from faircl.errors import UserError, listed, unknown_name
from faircl.labels import BACKGROUND, Mask, ignore_value
from faircl.scenario import Scenario
from faircl.scenario.label_table import unlabelled_value


@dataclass(frozen=True)
class Known:
    """The classes of a model: all names by id, and the ids that it has learned, in the order of its channels."""

    classes: Classes
    learned: tuple[int, ...]

    @classmethod
    def of(cls, scenario: Scenario, step: int) -> Known:
        """Return the classes that a run knows after a step."""
        return cls(scenario.classes, scenario.channel_ids[: scenario.channels(step)])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the learned classes, without background."""
        return tuple(self.classes.names[id] for id in self.foreground)

    @property
    def foreground(self) -> tuple[int, ...]:
        """Ids of the learned classes, without background."""
        return self.learned[int(self.classes.background) :]

    def is_background(self, id: int) -> bool:
        """Whether an id is that of the background class."""
        return self.classes.background and id == BACKGROUND


@dataclass(frozen=True)
class Matching:
    """Ids of a data set in terms of a model's.

    ``classes`` are those of the model with the new ones at their end, so that no id of the model ever changes.
    ``ids`` holds the model's id of every class of the data, by the data's id: None for its background and for classes
    that are left out. ``new`` are the ids to learn, ``known`` those of learned classes that the data names too.
    """

    classes: Classes
    ids: tuple[int | None, ...]
    new: tuple[int, ...]
    known: tuple[int, ...]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the names of ids."""
        return [self.classes.names[id] for id in ids]

    def table(self, source: Classes, rest: int | None = None) -> NDArray[np.uint16]:
        """Return the model's id of every value of a mask of the data, (65536,) uint16.

        Background and classes that are left out become ``rest``, by default ``unlabelled``.
        """
        rest = self.unlabelled if rest is None else rest
        table = np.full(65536, self.ignore, np.uint16)
        table[: len(source.names)] = [rest if id is None else id for id in self.ids]
        return table

    @property
    def unlabelled(self) -> int:
        """The value of pixels of no class in masks of the model's classes: background, or one of its own."""
        return BACKGROUND if self.classes.background else unlabelled_value(len(self.classes.names))

    @property
    def ignore(self) -> int:
        """The ignore value of masks of the model's classes."""
        return 255 if len(self.classes.names) <= MAX_UINT8_CLASSES else 65535


def match_classes(
    known: Known,
    source: Classes,
    *,
    wanted: Sequence[str] | None = None,
    same: Mapping[str, str] | None = None,
    present: Collection[int] | None = None,
) -> Matching:
    """Match the classes of ``source`` to those of a model; what it does not know is new.

    Names are equal up to case, spaces, '-' and '_'; ``same`` says of further names in the data which of the model's
    classes they are. ``wanted`` limits the new classes. ``present`` are the ids of the data that have pixels: a class
    without any is not new.
    """
    same = _checked_same(known, source, same or {})
    if wanted is not None:
        _check_wanted(known, source, wanted)
    by_name = {_plain(name): id for id, name in enumerate(known.classes.names)}
    names, ids, new, old = list(known.classes.names), [], [], []
    for place, name in enumerate(source.names):
        id = by_name.get(_plain(same.get(name, name)))
        if source.background and place == BACKGROUND:
            id = None
        elif id is not None and known.classes.background and id == BACKGROUND:
            id = None  # the data has a class of the background's name
        elif id in known.learned:
            if id not in old:
                old.append(id)
        elif (wanted is None or _plain(name) in map(_plain, wanted)) and (present is None or place in present):
            if id is None:
                id = by_name[_plain(name)] = len(names)
                names.append(name)
            if id not in new:
                new.append(id)
        else:
            id = None
        ids.append(id)
    return Matching(replace(known.classes, names=tuple(names)), tuple(ids), tuple(new), tuple(old))


def resembling(known: Known, matching: Matching) -> list[tuple[str, str]]:
    """Return new names that are spelled much like a known one, with that one."""
    plain = {_plain(name): name for name in known.names}
    found = []
    for name in matching.names(matching.new):
        close = get_close_matches(_plain(name), plain, n=1, cutoff=0.85)
        if close:
            found.append((name, plain[close[0]]))
    return found


def apply_matching(table: NDArray[np.uint16], mask: Mask, classes: int) -> Mask:
    """Return a mask of a data set as a mask of the model's ids; uint8 up to 254 classes, uint16 above."""
    ids = np.where(mask == ignore_value(mask), 65535, table[mask])  # as uint8, 65535 is 255
    return ids.astype(np.uint8) if classes <= MAX_UINT8_CLASSES else ids.astype(np.uint16)


def _checked_same(known: Known, source: Classes, same: Mapping[str, str]) -> Mapping[str, str]:
    for name, target in same.items():
        if name not in source.names:
            raise unknown_name("class of the new data", name, source.names)
        if _plain(target) not in map(_plain, known.names):
            raise unknown_name("class of the model", target, known.names)
    return same


def _check_wanted(known: Known, source: Classes, wanted: Sequence[str]) -> None:
    learned, found = {_plain(name) for name in known.names}, {_plain(name) for name in source.names}
    for name in wanted:
        if _plain(name) in learned:
            raise UserError(f"The model knows class '{name}' already; name new classes alone, or leave --classes out.")
        if _plain(name) not in found:
            raise UserError(
                f"The new data has no class '{name}'; it has: {listed([source.names[i] for i in source.foreground])}."
            )
