"""Listing the image and mask files of a data set."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from faircl.errors import UserError

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".png", ".tif", ".tiff", ".webp"})
MASK_SUFFIXES = frozenset({".png"})


class FilePair(NamedTuple):
    """Image and mask file of one id, '/'-separated paths relative to the root; `image` is None if there is none."""

    image: str | None
    mask: str


class Listing(NamedTuple):
    """The files of a split by id, in the data set's own order.

    `skipped`: files that belong to no image of the split. `unmasked`: images without a mask. Both are relative to the
    root.
    """

    files: dict[str, FilePair]
    skipped: tuple[str, ...] = ()
    unmasked: tuple[str, ...] = ()


def open_root(root: str | Path, expected: str) -> Path:
    """Return a data set's root folder; raise an error that says what is expected in it if it does not exist."""
    path = Path(root).expanduser()
    if not os.path.isdir(path):  # unlike Path.is_dir, it does not raise below a folder without permission
        found = "is not a folder" if os.path.exists(path) else "does not exist or may not be entered"
        raise UserError(f"Data folder {path} {found}; {expected} in it.")
    return path


def subfolders(folder: Path) -> set[str]:
    """Return the names of the folders in a folder, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")}
    except OSError as error:
        raise_cannot_list(error)


def folder_names(folder: Path) -> list[str]:
    """Return the sorted names of all entries of a folder; none if it does not exist."""
    try:
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    except OSError as error:
        raise_cannot_list(error)


def first_existing_folder(root: Path, *folders: str) -> str:
    """Return the first folder that exists; the first of all if none does."""
    return next((folder for folder in folders if os.path.isdir(root / folder)), folders[0])


def list_files(folder: Path, suffixes: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return id to extension of the files below a folder, sorted, and the skipped files; links are followed.

    Skipped are files with other extensions, hidden files and folders (.DS_Store, ._a.jpg), and links to a parent
    folder.
    """
    found: dict[str, str] = {}
    skipped: list[str] = []
    for place, folders, files in os.walk(folder, onerror=raise_cannot_list, followlinks=True):
        inner = os.path.relpath(place, folder).replace(os.sep, "/")
        prefix = "" if inner == "." else f"{inner}/"
        loops = {name for name in folders if _links_to_parent(os.path.join(place, name))}
        folders[:] = sorted(name for name in folders if name not in loops)
        skipped += [prefix + name for name in sorted(loops)]
        for name in sorted(files):
            stem, suffix = os.path.splitext(name)
            if "/." in f"/{prefix}{name}" or suffix.lower() not in suffixes:
                skipped.append(prefix + name)
                continue
            id = prefix + stem
            if id in found:
                first, second = sorted((found[id], suffix))
                raise UserError(
                    f"{folder} holds both {id}{first} and {id}{second}, which have the same id '{id}'; remove one."
                )
            found[id] = sys.intern(suffix)
    return dict(sorted(found.items())), skipped


def find_files(root: Path, folder: str, suffixes: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the files of a folder by id, and the skipped ones, relative to the root; none if it does not exist."""
    if not os.path.isdir(root / folder):
        return {}, []
    found, skipped = list_files(root / folder, suffixes)
    return {id: f"{folder}/{id}{suffix}" for id, suffix in found.items()}, [f"{folder}/{name}" for name in skipped]


def list_pairs(root: Path, image_folder: str, mask_folder: str) -> Listing:
    """Pair the masks of a folder with the images of another that have the same id."""
    masks, skipped = find_files(root, mask_folder, MASK_SUFFIXES)
    images, skipped_images = find_files(root, image_folder, IMAGE_SUFFIXES)
    files = {id: FilePair(images.get(id), path) for id, path in masks.items()}
    unmasked = tuple(path for id, path in images.items() if id not in masks)
    return Listing(files, (*skipped, *skipped_images), unmasked)


def describe_missing(names: Sequence[str], kind: str, lacks: str) -> str:
    """Return how many files lack their partner, and the first three: "2 masks with no image: a.png, b.png"."""
    named = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} {kind}{'s' if len(names) > 1 else ''} with {lacks}: {named}"


def raise_cannot_list(error: OSError) -> NoReturn:
    """Raise a UserError for a folder that cannot be listed."""
    raise UserError(
        f"Cannot list folder {error.filename}: {error.strerror or error}; check its permissions."
    ) from error


def _links_to_parent(path: str) -> bool:
    """Whether a folder is a link to one that contains it, which would be followed without end."""
    return os.path.islink(path) and f"{os.path.realpath(os.path.dirname(path))}{os.sep}".startswith(
        f"{os.path.realpath(path)}{os.sep}"
    )
