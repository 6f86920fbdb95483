"""Text files that list the image ids of a split, one per line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from faircl.data.listing import folder_names
from faircl.errors import UserError


def find_lists(folder: Path) -> dict[str, Path]:
    """Return the paths of the lists ``{split}.txt`` in a folder by split; none if the folder does not exist."""
    names = (name for name in folder_names(folder) if name.lower().endswith(".txt") and not name.startswith("."))
    return {os.path.splitext(name)[0]: folder / name for name in names}


def unique_ids(ids: Iterable[str], path: Path) -> tuple[str, ...]:
    """Return the ids of a list in its order; raise an error if one occurs twice."""
    found: dict[str, None] = {}
    for id in ids:
        if id in found:
            raise UserError(f"List {path} names '{id}' twice; remove one of the two lines.")
        found[id] = None
    return tuple(found)
