"""Names and colours of the classes in files for review."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from faircl.data.masks import IGNORE_COLOUR, Colour, Palette, voc_palette
from faircl.data.sample import Classes
from faircl.errors import UserError

BLACK: Colour = (0, 0, 0)
"""Colour of the background, and of pixels without a label; no other class has it."""


@dataclass(frozen=True)
class ReviewClasses:
    """The classes of a model, by id, and the new ones of its images behind them, with a colour each, all different."""

    classes: Classes
    colours: tuple[Colour, ...]
    gone: frozenset[int] = frozenset()
    """Ids that stand for no class any more, or not yet: nobody is to paint with them."""

    @classmethod
    def of(cls, classes: Classes, colours: Sequence[Colour], gone: Collection[int] = ()) -> ReviewClasses:
        """Give every class its own of ``colours``; one that has none, or that of another class, gets a free one."""
        found: list[Colour] = [BLACK] if classes.background else []
        taken = {BLACK, IGNORE_COLOUR}
        free = _free_colours({*colours, *taken}, len(classes.names))
        for id in classes.foreground:
            own = colours[id] if id < len(colours) else BLACK
            found.append(next(free) if own in taken else own)
            taken.add(found[-1])
        return cls(classes, tuple(found), frozenset(gone))

    @property
    def labels(self) -> dict[int, str]:
        """Names by id of the classes that a person can choose: all but the background and those that are gone."""
        return {id: self.classes.names[id] for id in self.classes.foreground if id not in self.gone}

    def palette(self) -> Palette:
        """Return 256 colours or more, all different, so that a colour beyond the classes is none of theirs."""
        size = max(256, len(self.colours) + 1)
        free = _free_colours({*self.colours, BLACK, IGNORE_COLOUR}, size)
        rest = [next(free) for _ in range(size - len(self.colours) - 1)]
        return np.array([*self.colours, *rest, IGNORE_COLOUR], np.uint8)

    def check_names(self, starts: str = "", holds: str = "") -> None:
        """Raise an error for a name that the files cannot hold, by its first letter, any letter or as a whole."""
        for name in self.classes.names:
            wrong = next((sign for sign in f"{holds}\n\r" if sign in name), name[:1] if name[:1] in starts else "")
            if wrong or not name.strip():
                found = f"has {wrong!r} in it, which means something else there" if wrong else "has no letters"
                raise UserError(f"The class '{name}' {found}; rename it, or choose other files with --to.")
        if named := [name for name in self.labels.values() if name.lower() == "background"]:
            raise UserError(
                f"The model's class '{named[0]}' is not a background and would be read back as one; rename it."
            )


def _free_colours(taken: set[Colour], count: int) -> Iterator[Colour]:
    """Yield colours of PASCAL VOC that are not taken, each once, at least ``count``."""
    for red, green, blue in voc_palette(count + len(taken)).tolist():
        if (red, green, blue) not in taken:
            yield red, green, blue
