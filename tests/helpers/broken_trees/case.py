"""What may come of a broken tree, and the cases by id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .good import TREES, Splits, Tree

Found = tuple[str, str | None]  # kind and file of a finding


@dataclass
class Reads:
    """The tree is read, and these are its masks.

    `skipped`: files that must be counted and named, by split. `found`: what a check finds none the less. `leaked`: of
    the only step.
    """

    masks: Splits
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    found: set[Found] = field(default_factory=set)
    leaked: float = 0.0
    settings: tuple[str, ...] = ()


@dataclass
class Refused:
    """The tree is refused in one sentence with these words; a check finds this, or refuses too where it is None."""

    words: tuple[str, ...]
    found: set[Found] | None
    settings: tuple[str, ...] = ()
    root: Path | None = None


class Case(NamedTuple):
    tree: Tree
    break_it: Callable[[Tree, Path], Reads | Refused]


CASES: dict[str, Case] = {}


def case(*names: str) -> Callable[[Any], Any]:
    """Add a function to the cases, once for each tree named."""

    def add(break_it: Callable[[Tree, Path], Reads | Refused]) -> Callable[[Tree, Path], Reads | Refused]:
        for name in names:
            CASES[f"{name}-{break_it.__name__}"] = Case(TREES[name], break_it)
        return break_it

    return add
