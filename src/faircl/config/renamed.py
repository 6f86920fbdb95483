"""Renamed settings: for one version an old key is accepted, with a warning that names the new one."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from faircl.errors import RenamedSetting, UserError


class Renamed(NamedTuple):
    """Old and new key of a setting in a section such as ``train`` or ``optim.parts``; ``""`` is the whole tree.

    ``part`` limits it to the data set, network or method of that name. In ``method`` it also holds for a method inside
    another one. ``values`` has the new value for every old one, where the two differ.
    """

    section: str
    old: str
    new: str
    part: str | None = None
    values: Mapping[Any, Any] = MappingProxyType({})


RENAMED: tuple[Renamed, ...] = (
    Renamed("data", "void_colour", "ignore_colour", "folder"),
    Renamed("data", "void", "ignore_value", "huggingface"),
    Renamed("train", "tensorboard", "loggers", values={True: ["tensorboard"], False: []}),
)


def with_new_keys(tree: dict[str, Any], under: Mapping[str, Any] | None = None, warn: bool = True) -> dict[str, Any]:
    """Return a tree of settings with old keys replaced by new ones.

    ``under`` is the tree that this one will be laid over: it names the parts that this one does not name.
    """
    for entry in RENAMED:
        path = entry.section.split(".") if entry.section else ()
        tree = _renamed(tree, under, path, entry, warn)
    return tree


def _renamed(tree: dict[str, Any], under: Any, path: Sequence[str], entry: Renamed, warn: bool) -> dict[str, Any]:
    under = {"name": under} if isinstance(under, str) else under if isinstance(under, Mapping) else {}
    inside = path[0] if path else "method" if entry.section == "method" else ""
    if isinstance(tree.get(inside), dict):
        tree = tree | {inside: _renamed(tree[inside], under.get(inside), path[1:], entry, warn)}
    if path or entry.old not in tree or entry.part not in (None, tree.get("name", under.get("name"))):
        return tree
    old, new = (".".join(filter(None, (entry.section, key))) for key in (entry.old, entry.new))
    if entry.new in tree:
        raise UserError(f"Setting {old} is now called {new}, and both are given; give {new} only.")
    if warn:
        text = f"setting {old} is now called {new}; the next version will refuse {old}"
        warnings.warn(text, RenamedSetting, stacklevel=2)
    return dict(_replaced(entry, key, value) for key, value in tree.items())


def _replaced(entry: Renamed, key: str, value: Any) -> tuple[str, Any]:
    if key != entry.old:
        return key, value
    return entry.new, entry.values.get(value, value) if isinstance(value, Hashable) else value
