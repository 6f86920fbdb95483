"""Names of classes: when two are the same, and which class of a model a name means."""

from __future__ import annotations

import re
from collections.abc import Sequence

from faircl.errors import UserError, unknown_name


def plain_name(name: str) -> str:
    """Return a name without case, and with one space for spaces, '-' and '_': names are compared by it."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def find_class(name: str, names: Sequence[str]) -> int:
    """Return the place of a class among a model's names: its own, or the only one that is the same."""
    if name in names:
        return names.index(name)
    same = [place for place, one in enumerate(names) if plain_name(one) == plain_name(name)]
    if len(same) != 1:
        raise unknown_name("class", name, names)
    return same[0]


def check_new_name(name: str) -> str:
    """Return a name for a class, without spaces around it; a UserError if it is empty or not one line of text."""
    if not name.strip() or not name.strip().isprintable():
        raise UserError(f"'{name}' cannot be the name of a class; expected one line of text.")
    return name.strip()
