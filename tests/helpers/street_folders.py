"""Folders of tiny street scenes that label some classes alone, and digests of a run's files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tiny_runs import Silent

from faircl.readers.scenes import SceneData
from faircl.readers.some_classes import SomeClasses
from faircl.readers.write_folder import write_folder

OLD = ("road", "building", "tree", "car")


def street_folder(
    root: Path, classes: Sequence[str], seed: int, images: int = 12, test_images: int = 6, size: int = 32
) -> Path:
    """Write scenes whose masks label ``classes`` alone; scenes of different seeds share no image."""
    scenes = SomeClasses(SceneData(images, test_images, size, seed), classes)
    write_folder(scenes, ("train", "test"), root, Silent())
    return root


def without_background(root: Path) -> Path:
    """Turn a folder into one without a background class: its pixels are ignored, ids begin at 0."""
    import numpy as np
    from PIL import Image

    from faircl.data.masks import write_mask

    for path in root.rglob("masks/**/*.png"):
        mask = np.array(Image.open(path))
        write_mask(path, (mask - 1).astype(np.uint8))
    names = (root / "classes.txt").read_text().splitlines()
    (root / "classes.txt").write_text("\n".join(names[1:]) + "\n")
    return root


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a folder, locks left out."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
