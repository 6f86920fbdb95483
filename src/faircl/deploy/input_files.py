"""Finding the images that a command names: files, folders with all below them, and patterns such as 'photos/*.jpg'."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from faircl.data.listing import IMAGE_SUFFIXES, raise_cannot_list
from faircl.errors import UserError


class InputImage(NamedTuple):
    """An image file, and the '/'-separated name, without suffix, that its results have below the output folder."""

    path: Path
    name: str


def find_images(given: Sequence[str | Path], out: Path) -> list[InputImage]:
    """Return the images that are named, each once, in the order given; those of folders sorted.

    What lies in the output folder ``out`` is left out. A name is the path below the folder that was given, or below the
    fixed part of the pattern, without its suffix. Where two images would have the same name, all names are relative to
    the deepest folder that holds every image; where they still do, as of photo.jpg and photo.png, those keep their
    suffix.
    """
    if not given:
        raise UserError("No images are given; name files, folders or patterns such as 'photos/*.jpg'.")
    found: dict[Path, tuple[Path, str]] = {}
    for one in given:
        matches = list(_matches(str(one), out.expanduser().resolve()))
        if not matches:
            raise UserError(_nothing(str(one)))
        for path, inside in matches:
            found.setdefault(path.resolve(), (path, inside))
    insides = [inside for _, inside in found.values()]
    if len(set(map(_stem, insides))) < len(insides):
        folder = os.path.commonpath([path.parent for path in found])
        insides = [os.path.relpath(path, folder) for path in found]
    names = list(map(_stem, insides))
    while taken := {name for name, count in Counter(names).items() if count > 1}:  # photo.jpg, photo.jpg.png
        names = [inside if name in taken else name for name, inside in zip(names, insides, strict=True)]
    return [InputImage(path, name.replace(os.sep, "/")) for (path, _), name in zip(found.values(), names, strict=True)]


def _matches(given: str, out: Path) -> Iterator[tuple[Path, str]]:
    """Yield the images of one argument, each with its path below the folder that was given."""
    path = Path(given).expanduser()
    if path.is_dir():
        yield from _below(path, path, out)
    elif path.exists() or not glob.has_magic(given):
        if not path.exists():
            raise UserError(f"There is no image or folder {path}; check its name.")
        yield path, path.name  # whatever its suffix is: it was asked for
    else:
        fixed = path
        while glob.has_magic(str(fixed)):
            fixed = fixed.parent
        for match in map(Path, sorted(glob.glob(str(path), recursive=True))):
            if match.is_dir():
                yield from _below(match, fixed, out)
            elif _is_image(match.name) and not match.resolve().is_relative_to(out):
                yield match, os.path.relpath(match, fixed)


def _below(folder: Path, base: Path, out: Path) -> Iterator[tuple[Path, str]]:
    """Yield the images below a folder, sorted; links are followed, hidden files and folders left out."""
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, onerror=raise_cannot_list, followlinks=True):
        real = os.path.realpath(place)
        if real in seen or Path(real).is_relative_to(out):
            folders.clear()
            continue
        seen.add(real)  # a link to a folder above would be followed without end
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(filter(_is_image, files)):
            yield Path(place, name), os.path.relpath(os.path.join(place, name), base)


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _stem(inside: str) -> str:
    return os.path.splitext(inside)[0]


def _nothing(given: str) -> str:
    kinds = ", ".join(sorted(IMAGE_SUFFIXES))
    if Path(given).expanduser().is_dir():
        return f"The folder {given} holds no image outside of the output folder; expected files that end in {kinds}."
    return f"No image matches {given}; expected files that end in {kinds}."
