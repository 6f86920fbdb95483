"""Roots that are not there, not folders, empty, or links."""

from __future__ import annotations

import os
from pathlib import Path

from .case import Reads, Refused, case
from .good import EVERY, Tree


@case(*EVERY)
def root_missing(tree: Tree, root: Path) -> Refused:
    return Refused(("nowhere", "does not exist", "expected"), None, root=root / "nowhere")


@case(*EVERY)
def root_is_a_file(tree: Tree, root: Path) -> Refused:
    (root / "file").touch()
    return Refused((f"{root / 'file'} is not a folder", "expected"), None, root=root / "file")


@case(*EVERY)
def root_is_empty(tree: Tree, root: Path) -> Refused:
    (root / "hollow").mkdir()
    return Refused((str(root / "hollow"), "expected"), None, root=root / "hollow")


@case(*EVERY)
def root_is_a_link_with_a_space(tree: Tree, root: Path) -> Reads:
    os.rename(root, root.parent / "far away é")
    root.symlink_to(root.parent / "far away é", target_is_directory=True)
    return Reads(tree.masks)
