"""Names of an adopted network's classes, its background class, and the order of its channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from faircl.data.masks import colour_names, voc_palette
from faircl.data.sample import Classes
from faircl.errors import UserError, did_you_mean, listed
from faircl.readers.folder import read_classes

BACKGROUND_NAMES = ("background", "__background__")
NO_BACKGROUND = "none"


class GivenNames(NamedTuple):
    """Names in the source's order, and colours "#rrggbb" of all of them or none."""

    names: tuple[str, ...]
    colours: tuple[str, ...] = ()


class AdoptedClasses(NamedTuple):
    """The classes by id; ``order``, the source's channel of every id; colours by id, or none."""

    classes: Classes
    order: tuple[int, ...]
    colours: tuple[str, ...] = ()


def parse_names(given: str | Path | Sequence[str]) -> GivenNames:
    """Read names: of a file with one name per line (as classes.txt), of a list with commas, or of a sequence."""
    if not isinstance(given, str | Path):
        return GivenNames(tuple(map(str, given)))
    path = Path(given).expanduser()
    if path.is_file():
        names, found = read_classes(path)
        if not found:
            return GivenNames(names)
        palette = voc_palette(len(names)).copy()
        palette[list(found.values())] = list(found)
        return GivenNames(names, tuple(colour_names(palette)))
    text = str(given)
    if "," not in text and (len(path.parts) > 1 or path.suffix):
        raise UserError(f"There is no file {path} with names of classes; give one, or the names: --classes sky,road.")
    return GivenNames(tuple(name.strip() for name in text.split(",")))


def adopted_classes(
    own: tuple[str, ...] | None, given: GivenNames | None, count: int, background: str | None
) -> AdoptedClasses:
    """Return the classes of a network of ``count`` channels, background first.

    ``own`` are the source's names, ``given`` the user's, which come before them. ``background`` is the name of the
    background class, "none" for no such class, or None: the first class, if it is called background.
    """
    if given is None and own is None:
        raise UserError(
            f"The network has {count} classes and does not name them; name them in its order, with --classes FILE (one "
            "per line) or --classes NAME,NAME,…."
        )
    names, colours = given or GivenNames(own or ())
    if len(names) != count:
        raise UserError(
            f"Found {_names(len(names))} for a network of {count}; name each of its classes once, in order."
        )
    if "" in names:
        raise UserError(f"Class {names.index('')} has an empty name; name every class.")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise UserError(f"Several classes are called '{twice[0]}'; names must differ: give others with --classes.")
    first = _background_channel(names, background)
    order = tuple(range(count)) if first is None else (first, *(k for k in range(count) if k != first))
    if first is not None and count == 1:
        raise UserError("The network has a background class alone; there is nothing to adopt.")
    return AdoptedClasses(
        Classes(tuple(names[k] for k in order), background=first is not None),
        order,
        tuple(colours[k] for k in order) if colours else (),
    )


def _background_channel(names: Sequence[str], background: str | None) -> int | None:
    if background is None:
        return 0 if names[0].lower() in BACKGROUND_NAMES else None
    if background == NO_BACKGROUND:
        return None
    if background not in names:
        raise UserError(
            f"The network has no class '{background}' to be the background.{did_you_mean(background, names)} It has: "
            f"{listed(names)}; --background none is for a network without one."
        )
    return names.index(background)


def _names(count: int) -> str:
    return "1 name" if count == 1 else f"{count} names"
