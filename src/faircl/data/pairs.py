"""Folders of masks beside folders of images with the same names."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from faircl.data.file_data import IMAGE_SUFFIXES, MASK_SUFFIXES, Files, Listing, list_files, some
from faircl.errors import UserError


def found_in(root: Path, folder: str, suffixes: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Files of a folder by id, and its other files, all below the root; none where there is no such folder."""
    if not os.path.isdir(root / folder):
        return {}, []
    found, skipped = list_files(root / folder, suffixes)
    return {id: f"{folder}/{id}{suffix}" for id, suffix in found.items()}, [f"{folder}/{name}" for name in skipped]


def first_folder(root: Path, *folders: str) -> str:
    """Return the first folder that is there; the first of all if none is."""
    return next((folder for folder in folders if os.path.isdir(root / folder)), folders[0])


def list_pairs(root: Path, image_folder: str, mask_folder: str) -> Listing:
    """List the masks of a folder, and the images that are there; an image without a mask is an error."""
    masks, skipped = found_in(root, mask_folder, MASK_SUFFIXES)
    images, skipped_images = found_in(root, image_folder, IMAGE_SUFFIXES)
    check_masks(root, mask_folder, images, masks)
    return Listing({id: Files(images.get(id), masks[id]) for id in masks}, tuple(skipped + skipped_images))


def check_masks(root: Path, mask_folder: str, images: dict[str, str], masks: Collection[str]) -> None:
    """Raise an error that names images, below the root by id, which have no mask."""
    if bare := [path for id, path in images.items() if id not in masks]:
        raise UserError(
            f"{root} has {some(bare, 'image', 'no mask')}; unpack {root / mask_folder} again or remove the images."
        )
