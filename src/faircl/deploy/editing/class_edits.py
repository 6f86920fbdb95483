"""What renaming, merging and dropping make of a model's classes; nothing is computed or written here.

Ids never change and are never used again: the id of a class that is gone keeps its place among the names, with a word
on where it went, and a class of its name that is learned later has an id of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from faircl.data.sample import Classes
from faircl.deploy.class_names import check_new_name, find_class, plain_name
from faircl.deploy.matching import Known
from faircl.errors import UserError, listed

Kind = Literal["rename-classes", "merge-classes", "drop-classes"]


@dataclass(frozen=True)
class ClassEdit:
    """A change of a model's classes.

    ``classes`` are all names by id afterwards, ``learned`` the ids of the model's classes in the order of its channels;
    ``groups`` are the channels before that each of them consists of. ``what`` says it in words.
    """

    kind: Kind
    what: str
    classes: Classes
    learned: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def regroups(self) -> bool:
        """Whether the network changes, not the names alone."""
        return self.kind != "rename-classes"


def rename(known: Known, names: Mapping[str, str]) -> ClassEdit:
    """Give classes other names; they may also exchange theirs."""
    if not names:
        raise UserError("No class to rename is named; give OLD=NEW.")
    present = _learned_names(known)
    new = {find_class(old, present): check_new_name(name) for old, name in names.items()}
    if len(new) < len(names):
        raise UserError(f"One class is to have two names: {', '.join(names)} are not different classes of the model.")
    for channel, name in new.items():
        if present[channel] == name:
            raise UserError(f"Class '{name}' has that name already; give it another one.")
    renamed = _with_names(known, {known.learned[channel]: name for channel, name in new.items()})
    what = ", ".join(f"{present[channel]} to {name}" for channel, name in new.items())
    return ClassEdit("rename-classes", f"renamed {what}", renamed, known.learned, _unchanged(known))


def merge(known: Known, names: Sequence[str], into: str) -> ClassEdit:
    """Make one class of several.

    It keeps the id of the background if that is one of them; otherwise of the one that is called ``into``, or else of
    the first.
    """
    into = check_new_name(into)
    present, channels = _learned_names(known), _chosen(known, names, "merge")
    if len(channels) < 2:
        raise UserError(f"To merge takes two classes or more, found {listed(list(names)) or 'none'}; name all of them.")
    called = [channel for channel in channels if plain_name(present[channel]) == plain_name(into)]
    background = [channel for channel in channels if known.is_background(known.learned[channel])]
    kept = [*background, *called, *channels][0]
    members = (kept, *(channel for channel in channels if channel != kept))
    gone = set(members[1:])
    groups = tuple(members if channel == kept else group for channel, group in enumerate(_unchanged(known)))
    old = {known.learned[channel]: f"{present[channel]} (merged into {into})" for channel in gone}
    classes = _with_names(known, {known.learned[kept]: into}, old)
    if not _foreground(known, gone):
        raise UserError(f"Merging {listed(list(names))} leaves no class beside the background; leave one out.")
    what = f"merged {', '.join(present[channel] for channel in channels)} into {into}"
    return ClassEdit("merge-classes", what, classes, *_without(known, gone, groups))


def drop(known: Known, names: Sequence[str]) -> ClassEdit:
    """Take classes away; the background cannot be, and one other class at least remains."""
    present, channels = _learned_names(known), _chosen(known, names, "drop")
    if not channels:
        raise UserError("No class to drop is named.")
    if background := [present[c] for c in channels if known.is_background(known.learned[c])]:
        raise UserError(f"The background, class '{background[0]}', cannot be dropped: it takes what no class is.")
    gone = set(channels)
    if not _foreground(known, gone):
        raise UserError(f"Dropping {listed(list(names))} leaves no class; at least one must remain.")
    old = {known.learned[channel]: f"{present[channel]} (dropped)" for channel in channels}
    what = f"dropped {', '.join(present[channel] for channel in channels)}"
    return ClassEdit("drop-classes", what, _with_names(known, {}, old), *_without(known, gone, _unchanged(known)))


def _learned_names(known: Known) -> tuple[str, ...]:
    """Return the names of the model's classes, by channel, the background's among them."""
    return tuple(known.classes.names[id] for id in known.learned)


def _chosen(known: Known, names: Sequence[str], verb: str) -> list[int]:
    """Return the channels of classes by name, each once."""
    present = _learned_names(known)
    channels = [find_class(name, present) for name in names]
    if twice := [name for place, name in enumerate(names) if channels[place] in channels[:place]]:
        raise UserError(f"Class '{twice[0]}' is named twice; name every class to {verb} once.")
    return channels


def _with_names(known: Known, new: Mapping[int, str], gone: Mapping[int, str] | None = None) -> Classes:
    """Return the names by id after a change; a UserError if one of the new names is that of another class."""
    names = list(known.classes.names)
    for id, name in {**(gone or {}), **new}.items():
        names[id] = name
    for id, name in new.items():
        same = [other for other, one in enumerate(names) if other != id and plain_name(one) == plain_name(name)]
        if same and same[0] in new:
            raise UserError(f"Two classes are to be called '{name}'; every class needs a name of its own.")
        if same and same[0] in known.learned:
            raise UserError(
                f"Another class is called '{names[same[0]]}' already; choose another name, or merge both with "
                "'faircl classes merge'."
            )
        if same:
            raise UserError(
                f"'{names[same[0]]}' is the name of class {same[0]} of the data that the model was trained on, which "
                "it has not learned; choose another name."
            )
    return replace(known.classes, names=tuple(names))


def _unchanged(known: Known) -> tuple[tuple[int, ...], ...]:
    return tuple((channel,) for channel in range(len(known.learned)))


def _without(
    known: Known, gone: set[int], groups: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the ids and groups of the channels that remain, in their order."""
    kept = [channel for channel in range(len(known.learned)) if channel not in gone]
    return tuple(known.learned[channel] for channel in kept), tuple(groups[channel] for channel in kept)


def _foreground(known: Known, gone: set[int]) -> bool:
    """Whether a class beside the background remains."""
    return any(c not in gone and not known.is_background(id) for c, id in enumerate(known.learned))
