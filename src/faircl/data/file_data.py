"""Base class of the readers of image and mask files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faircl.data.images import RGB, ImageReading
from faircl.data.listing import FilePair, Listing, describe_missing
from faircl.data.mask_coding import MaskCoding, MaskCounts, count_ids
from faircl.data.masks import Palette
from faircl.data.raster_files import file_bytes
from faircl.data.sample import Classes, Sample
from faircl.errors import UserError, did_you_mean, listed
from faircl.labels import Mask


class FileData:
    """Reader of image and mask files.

    A subclass sets `classes` and `coding` in its constructor and implements `splits` and `list_split`. Listing needs
    masks only; `check_images` and `read` require the images. Several splits can be joined by '+': ``train+val``.
    """

    classes: Classes
    coding: MaskCoding
    palette: Palette | None = None
    """Colours of the classes by id, where the data has its own."""
    domain_order: tuple[str, ...] = ()
    """Published order of the domains, where there is one."""
    domain_tasks: tuple[str, ...] = ()
    """Tasks whose published names divide the domains, not the classes."""

    def __init__(self, root: Path, images: ImageReading = RGB) -> None:
        self.root, self.images = root, images
        self._listings: dict[str, Listing] = {}

    # For subclasses

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits."""
        raise NotImplementedError

    def list_split(self, split: str) -> Listing:
        """List one of `splits`."""
        raise NotImplementedError

    def label_key(self, split: str, id: str) -> str:
        """Return a cache key: all that a mask's labels depend on besides its bytes.

        A reader whose own `decode_mask` depends on more than its code, such as a file, overrides this.
        """
        own = type(self)
        plain = own.decode_mask is FileData.decode_mask and own.count_mask is FileData.count_mask
        return self.coding.fingerprint if plain else f"{self.coding.fingerprint}/{own.__module__}.{own.__qualname__}"

    def decode_mask(self, split: str, id: str, data: bytes) -> Mask:
        """Class ids (H, W) of a mask file's bytes."""
        return self.coding.decode(data, self.mask_path(split, id))

    def count_mask(self, split: str, id: str, data: bytes) -> MaskCounts:
        """Count the classes of a mask file's bytes; same result as counting `decode_mask`, but faster."""
        if type(self).decode_mask is not FileData.decode_mask:
            return count_ids(self.decode_mask(split, id, data), len(self.classes.names))
        return self.coding.count(data, self.mask_path(split, id))

    def image_key(self, split: str, id: str) -> str | None:
        """Return the path that identifies an image even if its file is missing; None if there is no such path."""
        return self._files(split, id).image

    def suspicion(self, pixels: NDArray[np.int64]) -> str:
        """Return a warning if the pixels per class (K,) suggest masks of a wrong kind, otherwise an empty string."""
        return ""

    def domain(self, split: str, id: str) -> str | None:
        """Return an image's domain (city, site, camera): the first folder of its id, or None if it is in none."""
        return id.partition("/")[0] if "/" in id else None

    # For everyone

    def ids(self, split: str) -> Sequence[str]:
        """Image ids of a split, in the data set's own order."""
        return tuple(self.listing(split).files)

    def skipped(self, split: str) -> tuple[str, ...]:
        """Return the files of a split that belong to none of its images, relative to the root."""
        return self.listing(split).skipped

    def listing(self, split: str) -> Listing:
        """List a split, or several joined by '+', and check the listing; the result is cached."""
        if split not in self._listings:
            listing = self.list_unchecked(split)
            self.check_listing(split, listing)
            self._listings[split] = listing
        return self._listings[split]

    def check_listing(self, split: str, listing: Listing) -> None:
        """Raise an error if images have no mask or the split is empty."""
        if listing.unmasked:
            found = describe_missing(listing.unmasked, "image", "no mask")
            raise UserError(f"{self.root} has {found}; unpack or add the masks, or remove the images.")
        if not listing.files:
            raise UserError(f"Split '{split}' of {self.root} is empty; expected at least one mask in it.")

    def mask_path(self, split: str, id: str) -> Path:
        """Return the path of an id's mask."""
        return self.root / self._files(split, id).mask

    def image_path(self, split: str, id: str) -> Path:
        """Return the path of an id's image; raise an error if it has none."""
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
        """Raise an error that names the masks of a split without an image."""
        listing = self.listing(split)
        missing = [files.mask for files in listing.files.values() if not self._has_image(files)]
        if missing:
            found = describe_missing(missing, "mask", "no image")
            raise UserError(f"{self.root} has {found}; add the images or remove the masks.")

    def _has_image(self, files: FilePair) -> bool:
        return files.image is not None and os.path.exists(self.root / files.image)

    def _files(self, split: str, id: str) -> FilePair:
        files = self.listing(split).files.get(id)
        if files is None:
            raise UserError(f"No image '{id}' in split '{split}' of {self.root}; ids are paths without extension.")
        return files

    def relist_unchecked(self, split: str) -> Listing:
        """List a split again without checking it, and cache the result; for a check that reports all problems."""
        self._listings = {**self._listings, split: self.list_unchecked(split)}
        return self._listings[split]

    def list_unchecked(self, split: str) -> Listing:
        """List a split, or several joined by '+', without checking the listing."""
        files: dict[str, FilePair] = {}
        skipped: list[str] = []
        unmasked: list[str] = []
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
            unmasked += listing.unmasked
        return Listing(files, tuple(dict.fromkeys(skipped)), tuple(unmasked))

    def check_split(self, split: str) -> None:
        """Raise an error if there is no such split."""
        splits = self.splits()
        if split not in splits:
            have = f"It has: {listed(splits)}." if splits else "It has none."
            raise UserError(f"Data set {self.root} has no split '{split}'.{did_you_mean(split, splits)} {have}")
