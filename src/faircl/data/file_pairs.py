"""Folders of masks beside folders of images with the same names."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from faircl.data.file_data import IMAGE_SUFFIXES, MASK_SUFFIXES, FilePair, Listing, list_files


def find_files(root: Path, folder: str, suffixes: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Files of a folder by id, and its other files, all below the root; none where there is no such folder."""
    if not os.path.isdir(root / folder):
        return {}, []
    found, skipped = list_files(root / folder, suffixes)
    return {id: f"{folder}/{id}{suffix}" for id, suffix in found.items()}, [f"{folder}/{name}" for name in skipped]


def first_existing_folder(root: Path, *folders: str) -> str:
    """Return the first folder that is there; the first of all if none is."""
    return next((folder for folder in folders if os.path.isdir(root / folder)), folders[0])


def list_pairs(root: Path, image_folder: str, mask_folder: str) -> Listing:
    """List the masks of a folder, and the images that are there."""
    masks, skipped = find_files(root, mask_folder, MASK_SUFFIXES)
    images, skipped_images = find_files(root, image_folder, IMAGE_SUFFIXES)
    bare = tuple(path for id, path in images.items() if id not in masks)
    return Listing({id: FilePair(images.get(id), masks[id]) for id in masks}, tuple(skipped + skipped_images), bare)
