"""What all readers of image and mask files share: splits, paths, decoding, pairs that must fit."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from faircl.data.images import RGB, ImageReading
from faircl.data.mask_coding import MaskCoding, MaskCounts, count_ids
from faircl.data.masks import Palette, file_bytes
from faircl.data.sample import Classes, Sample
from faircl.errors import UserError, did_you_mean
from faircl.labels import Mask

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".png", ".tif", ".tiff", ".webp"})
MASK_SUFFIXES = frozenset({".png"})


class FilePair(NamedTuple):
    """Where one id's files are, below the root, '/'-separated; `image` is None where none was found."""

    image: str | None
    mask: str


class Listing(NamedTuple):
    """The files of a split by id, in the data set's own order.

    `skipped` are files that belong to no image of the split, `bare` images that have no mask; both below the root.
    """

    files: dict[str, FilePair]
    skipped: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


class FileData:
    """Base of the readers of files.

    A subclass sets `classes` and `coding` in its constructor, names its `splits` and lists a split's files. Listing
    needs masks and lists only: whether images are there is asked by `check_images` and `read`. A split may be several,
    joined by '+': ``train+val``.
    """

    classes: Classes
    coding: MaskCoding
    palette: Palette | None = None
    domain_order: tuple[str, ...] = ()
    """Published order of the domains, where there is one."""
    domain_tasks: tuple[str, ...] = ()
    """Tasks whose published names divide the domains, not the classes."""

    def __init__(self, root: Path, images: ImageReading = RGB) -> None:
        self.root, self.images = root, images
        self._listings: dict[str, Listing] = {}

    # For subclasses

    def splits(self) -> tuple[str, ...]:
        """Names of the splits that are there."""
        raise NotImplementedError

    def list_split(self, split: str) -> Listing:
        """List one of `splits`."""
        raise NotImplementedError

    def label_key(self, split: str, id: str) -> str:
        """Return what a mask's labels depend on besides its bytes: counts are remembered by both.

        A reader that decodes in a way of its own, and depends on more than the code that does it, says here on what.
        """
        own = type(self)
        plain = own.decode_mask is FileData.decode_mask and own.count_mask is FileData.count_mask
        return self.coding.fingerprint if plain else f"{self.coding.fingerprint}/{own.__module__}.{own.__qualname__}"

    def decode_mask(self, split: str, id: str, data: bytes) -> Mask:
        """Class ids (H, W) of a mask file's bytes."""
        return self.coding.decode(data, self.mask_path(split, id))

    def count_mask(self, split: str, id: str, data: bytes) -> MaskCounts:
        """Count the classes of a mask file's bytes; as `decode_mask`, faster."""
        if type(self).decode_mask is not FileData.decode_mask:
            return count_ids(self.decode_mask(split, id, data), len(self.classes.names))
        return self.coding.count(data, self.mask_path(split, id))

    def image_key(self, split: str, id: str) -> str | None:
        """Return what tells an image from others where its file is not there; None where nothing does."""
        return self._files(split, id).image

    def doubt(self, pixels: NDArray[np.int64]) -> str:
        """Return a sentence if the pixels of the classes (K,) give away that the masks are not what they seem."""
        return ""

    def domain(self, split: str, id: str) -> str | None:
        """Domain (city, site, camera) an image belongs to: the first folder of its id, if it lies in one."""
        return id.partition("/")[0] if "/" in id else None

    # For everyone

    def ids(self, split: str) -> Sequence[str]:
        """Image ids of a split, in the data set's own order."""
        return tuple(self.listing(split).files)

    def skipped(self, split: str) -> tuple[str, ...]:
        """Files found among a split's that belong to none of its images, below the root."""
        return self.listing(split).skipped

    def listing(self, split: str) -> Listing:
        """List a split, or several joined by '+', once; an error where images have no mask, or there is nothing."""
        if split not in self._listings:
            listing = self.list_leniently(split)
            self.check_listing(split, listing)
            self._listings[split] = listing
        return self._listings[split]

    def check_listing(self, split: str, listing: Listing) -> None:
        """Raise an error if a listing cannot be trained on."""
        if listing.bare:
            found = describe_missing(listing.bare, "image", "no mask")
            raise UserError(f"{self.root} has {found}; unpack or add the masks, or remove the images.")
        if not listing.files:
            raise UserError(f"Split '{split}' of {self.root} is empty; expected at least one mask in it.")

    def mask_path(self, split: str, id: str) -> Path:
        """Path of an id's mask."""
        return self.root / self._files(split, id).mask

    def image_path(self, split: str, id: str) -> Path:
        """Path of an id's image; an error where none was found."""
        files = self._files(split, id)
        if files.image is None:
            raise UserError(f"Mask {self.root / files.mask} has no image; add it or remove the mask.")
        return self.root / files.image

    def read(self, split: str, id: str) -> Sample:
        """Image (H, W, 3) and mask (H, W) of one id, their sizes and the mask's values checked."""
        image_path = self.image_path(split, id)
        image, mask = self.images.read(image_path), self.read_mask(split, id)
        if image.shape[:2] != mask.shape:
            (high, wide), (mask_high, mask_wide) = image.shape[:2], mask.shape
            raise UserError(
                f"Mask {self.mask_path(split, id)} is {mask_wide}x{mask_high} pixels, but its image {image_path} is "
                f"{wide}x{high} (width x height); both must have the same size, so export the mask again at the "
                "image's."
            )
        return Sample(id, image, mask)

    def read_mask(self, split: str, id: str) -> Mask:
        """Mask (H, W) of one id, its values checked."""
        return self.decode_mask(split, id, file_bytes(self.mask_path(split, id), "mask"))

    def check_images(self, split: str) -> None:
        """Raise an error that names the masks of a split whose image is not there."""
        listing = self.listing(split)
        bare = [files.mask for files in listing.files.values() if not self._has_image(files)]
        if bare:
            found = describe_missing(bare, "mask", "no image")
            raise UserError(f"{self.root} has {found}; add the images or remove the masks.")

    def _has_image(self, files: FilePair) -> bool:
        return files.image is not None and os.path.exists(self.root / files.image)

    def _files(self, split: str, id: str) -> FilePair:
        files = self.listing(split).files.get(id)
        if files is None:
            raise UserError(f"No image '{id}' in split '{split}' of {self.root}; ids are paths without extension.")
        return files

    def relist(self, split: str) -> Listing:
        """List a split anew and go on with it whatever is missing in it, for a check that names all problems."""
        self._listings = {**self._listings, split: self.list_leniently(split)}
        return self._listings[split]

    def list_leniently(self, split: str) -> Listing:
        """List a split, or several joined by '+', whatever is missing in it."""
        files: dict[str, FilePair] = {}
        skipped: list[str] = []
        bare: list[str] = []
        for part in split.split("+"):
            self.check_split(part)
            listing = self.list_split(part)
            if twice := files.keys() & listing.files.keys():
                raise UserError(
                    f"Splits {split} of {self.root} cannot be joined: '{min(twice)}' and {len(twice) - 1} more ids are "
                    "in two of them; rename or remove one."
                )
            files |= listing.files
            skipped += listing.skipped
            bare += listing.bare
        return Listing(files, tuple(dict.fromkeys(skipped)), tuple(bare))

    def check_split(self, split: str) -> None:
        """Raise an error if there is no such split."""
        splits = self.splits()
        if split not in splits:
            have = f"It has: {', '.join(splits)}." if splits else "It has none."
            raise UserError(f"Data set {self.root} has no split '{split}'.{did_you_mean(split, splits)} {have}")


def open_root(root: str | Path, expected: str) -> Path:
    """Return a data set's folder; an error that names what is expected in it where there is none."""
    path = Path(root).expanduser()
    if not os.path.isdir(path):  # unlike Path.is_dir, it does not raise below a forbidden folder
        found = "is not a folder" if os.path.exists(path) else "does not exist or may not be entered"
        raise UserError(f"Data folder {path} {found}; {expected} in it.")
    return path


def subfolders(folder: Path) -> set[str]:
    """Names of the folders in a folder, hidden ones left out."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")}
    except OSError as error:
        raise_cannot_list(error)


def list_files(folder: Path, suffixes: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Id to extension of the files below a folder, links followed, sorted; and the files left out.

    A file is left out for its extension or for a name, its own or a folder's, that starts with a dot (.DS_Store,
    ._a.jpg); and so is a link to a folder that it lies in.
    """
    found: dict[str, str] = {}
    skipped: list[str] = []
    for place, folders, files in os.walk(folder, onerror=raise_cannot_list, followlinks=True):
        inner = os.path.relpath(place, folder).replace(os.sep, "/")
        prefix = "" if inner == "." else f"{inner}/"
        back = {name for name in folders if _links_to_parent(os.path.join(place, name))}
        folders[:] = sorted(name for name in folders if name not in back)
        skipped += [prefix + name for name in sorted(back)]
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


def _links_to_parent(path: str) -> bool:
    """Whether a folder is a link to one that it lies in: followed, it would never end."""
    return os.path.islink(path) and f"{os.path.realpath(os.path.dirname(path))}{os.sep}".startswith(
        f"{os.path.realpath(path)}{os.sep}"
    )


def raise_cannot_list(error: OSError) -> NoReturn:
    """Turn a folder that cannot be listed into a sentence."""
    raise UserError(
        f"Cannot list folder {error.filename}: {error.strerror or error}; check its permissions."
    ) from error


def describe_missing(names: Sequence[str], kind: str, lacks: str) -> str:
    """Say how many files lack their partner, and name the first three."""
    named = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} {kind}{'s' if len(names) > 1 else ''} with {lacks}: {named}"
