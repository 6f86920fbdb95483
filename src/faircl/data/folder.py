"""The plain folder layout, for anyone's own data.

root/classes.txt             one class per line, line k is id k: ``name`` or ``name r g b``
root/images/{split}/**/x.jpg
root/masks/{split}/**/x.png
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from faircl.data.masks import Colour, ColourTable, open_raster, read_mask
from faircl.data.sample import Classes, Image, Mask, Sample
from faircl.errors import UserError, did_you_mean, unknown_name

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
MASK_SUFFIXES = frozenset({".png"})
CLASSES_FILE = "classes.txt"

_NAME_AND_COLOUR = re.compile(r"(.*\S)\s+(\d+)\s+(\d+)\s+(\d+)")
_LAYOUT = "expected classes.txt, images/{split}/ and masks/{split}/"


class FolderData:
    """Reader of the folder layout. The constructor reads classes.txt only; a split is listed on first use.

    An id is the path below images/{split} without its extension, '/'-separated. `background`: ``auto`` (id 0 is
    background if it is called so), ``first`` (id 0 is) or ``none``. `void_colour` is for RGB-coded masks.
    """

    def __init__(self, root: str | Path, background: str = "auto", void_colour: Colour | None = None) -> None:
        self.root = Path(root).expanduser()
        if background not in ("auto", "first", "none"):
            raise unknown_name("background setting", background, ("auto", "first", "none"))
        if not os.path.isdir(self.root):  # unlike Path.is_dir, it does not raise below a forbidden folder
            found = "is not a folder" if os.path.exists(self.root) else "does not exist or may not be entered"
            raise UserError(f"Data folder {self.root} {found}; {_LAYOUT} in it.")
        missing = [name for name in ("images", "masks") if not os.path.isdir(self.root / name)]
        if not os.path.isfile(self.root / CLASSES_FILE):
            missing.insert(0, CLASSES_FILE)
        if missing:
            raise UserError(f"Data folder {self.root} has no {' and no '.join(missing)}; {_LAYOUT}.")
        names, colours = read_classes(self.root / CLASSES_FILE)
        named = background == "auto" and names[0].lower() == "background"
        self.classes = Classes(names, background=named or background == "first")
        self._colours = ColourTable(colours, void_colour) if colours else None
        # Per split: id to the extensions of its image and mask. No paths, so that workers unpickle little.
        self._listed: dict[str, dict[str, tuple[str, str]]] = {}

    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have both images and masks, sorted."""
        return tuple(sorted(_subfolders(self.root / "images") & _subfolders(self.root / "masks")))

    def ids(self, split: str) -> Sequence[str]:
        """Image ids of a split, sorted."""
        return tuple(self._pairs(split))

    def read(self, split: str, id: str) -> Sample:
        """Image (H, W, 3) and mask (H, W) of one id, their sizes and the mask's values checked."""
        image_path, mask_path = self._paths(split, id)
        image, mask = read_image(image_path), self.read_mask(split, id)
        if image.shape[:2] != mask.shape:
            (high, wide), (mask_high, mask_wide) = image.shape[:2], mask.shape
            raise UserError(
                f"Mask {mask_path} is {mask_wide}x{mask_high} pixels, but its image {image_path} is {wide}x{high} "
                "(width x height); both must have the same size, so export the mask again at the image's."
            )
        return Sample(id, image, mask)

    def read_mask(self, split: str, id: str) -> Mask:
        """Mask (H, W) of one id, its values checked."""
        return read_mask(self._paths(split, id)[1], len(self.classes.names), self._colours, CLASSES_FILE)

    def _paths(self, split: str, id: str) -> tuple[Path, Path]:
        suffixes = self._pairs(split).get(id)
        if suffixes is None:
            raise UserError(f"No image '{id}' in {self._folder('images', split)}; ids are paths without extension.")
        # Not with_suffix: it would cut an id at its last dot.
        return self._folder("images", split) / (id + suffixes[0]), self._folder("masks", split) / (id + suffixes[1])

    def _folder(self, kind: str, split: str) -> Path:
        return self.root / kind / split

    def _pairs(self, split: str) -> dict[str, tuple[str, str]]:
        if split not in self._listed:
            self._check_split(split)
            image_folder, mask_folder = self._folder("images", split), self._folder("masks", split)
            images, masks = _list(image_folder, IMAGE_SUFFIXES), _list(mask_folder, MASK_SUFFIXES)
            if not images:
                kinds = " ".join(sorted(IMAGE_SUFFIXES))
                raise UserError(f"Split '{split}' is empty: {image_folder} holds no image ({kinds}); put some there.")
            if bare := sorted(images.keys() - masks.keys()):
                found = _some(image_folder, bare, images, "image", "no mask")
                raise UserError(f"{found}; expected {mask_folder / bare[0]}.png: add masks or remove images.")
            if orphans := sorted(masks.keys() - images.keys()):
                found = _some(mask_folder, orphans, masks, "mask", "no image")
                raise UserError(
                    f"{found}; expected {image_folder / orphans[0]}.jpg or alike: add images or remove masks."
                )
            self._listed[split] = {id: (images[id], masks[id]) for id in sorted(images)}
        return self._listed[split]

    def _check_split(self, split: str) -> None:
        splits = self.splits()
        if split in splits:
            return
        for kind, other in (("images", "masks"), ("masks", "images")):
            if split in _subfolders(self.root / kind):
                raise UserError(
                    f"Split '{split}' has {self._folder(kind, split)} but no {self._folder(other, split)}; "
                    "a split needs both folders."
                )
        have = f"It has: {', '.join(splits)}." if splits else "It has none: make images/train and masks/train."
        raise UserError(f"Data folder {self.root} has no split '{split}'.{did_you_mean(split, splits)} {have}")


def read_classes(path: Path) -> tuple[tuple[str, ...], dict[Colour, int]]:
    """Names by id, and ids by colour, of a classes.txt. Lines that start with '#' are comments."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror or error
        raise UserError(f"Cannot read {path}: {why}; write one class name per line.") from error
    lines = "\n".join(line.strip() for line in lines if not line.lstrip().startswith("#")).rstrip().split("\n")
    if lines == [""]:
        raise UserError(f"{path} names no class; write one class name per line, line k being id k.")
    names: list[str] = []
    colours: dict[Colour, int] = {}
    for id, line in enumerate(lines):
        name, *rgb = match.groups() if (match := _NAME_AND_COLOUR.fullmatch(line)) else (line,)
        if not name:  # skipping it would shift every later id
            raise UserError(f"{path} has an empty line where the name of id {id} is expected; name it or remove it.")
        if name in names:
            raise UserError(f"{path} names '{name}' twice, as ids {names.index(name)} and {id}; names must differ.")
        names.append(name)
        if rgb:
            colour = (int(rgb[0]), int(rgb[1]), int(rgb[2]))
            if max(colour) > 255:
                raise UserError(f"{path} gives '{name}' the colour {colour}; red, green and blue go from 0 to 255.")
            if colour in colours:
                raise UserError(
                    f"{path} gives colour {colour} to '{names[colours[colour]]}' and to '{name}'; change one."
                )
            colours[colour] = id
    return tuple(names), colours


def read_image(path: Path) -> Image:
    """Any picture Pillow reads, as (H, W, 3) uint8 RGB.

    EXIF orientation is left alone: masks are drawn on the stored raster, and rotating one of the two parts them.
    Alpha is dropped, not blended. 16-bit values lose their low byte; stretching each image to its own range would
    make equal pixels of two images differ.
    """
    image = open_raster(path, "image")
    if image.mode.startswith("I"):
        deep = np.asarray(image)
        if deep.min() < 0 or deep.max() > 65535:
            raise UserError(f"Image {path} holds values from {deep.min()} to {deep.max()}; save it with 8 or 16 bits.")
        return np.repeat((deep >> 8).astype(np.uint8)[..., None], 3, axis=2)
    if image.mode == "F":
        raise UserError(f"Image {path} holds floating point numbers, whose range is unknown; save it with 8 bits.")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # straight to RGB, Pillow warns
    return np.array(image.convert("RGB"), dtype=np.uint8)


def _subfolders(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")}
    except OSError as error:
        _cannot_list(error)


def _list(folder: Path, suffixes: Collection[str]) -> dict[str, str]:
    """Id to extension of the files below a folder, links followed and hidden ones (.DS_Store, ._a.jpg) left out."""
    found: dict[str, str] = {}
    for place, subfolders, files in os.walk(folder, onerror=_cannot_list, followlinks=True):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        inner = os.path.relpath(place, folder).replace(os.sep, "/")
        prefix = "" if inner == "." else f"{inner}/"
        for name in files:
            stem, suffix = os.path.splitext(name)  # Thumbs.db and notes go by their extension
            if name.startswith(".") or suffix.lower() not in suffixes:
                continue
            id = prefix + stem
            if id in found:
                first, second = sorted((found[id], suffix))
                raise UserError(
                    f"{folder} holds both {id}{first} and {id}{second}, which have the same id '{id}'; remove one."
                )
            found[id] = sys.intern(suffix)  # one string, however many files: pickles stay small
    return found


def _cannot_list(error: OSError) -> NoReturn:
    raise UserError(
        f"Cannot list folder {error.filename}: {error.strerror or error}; check its permissions."
    ) from error


def _some(folder: Path, ids: list[str], suffixes: dict[str, str], kind: str, lacks: str) -> str:
    """Say how many files lack their partner, and name the first three."""
    named = ", ".join(id + suffixes[id] for id in ids[:3]) + (", ..." if len(ids) > 3 else "")
    return f"{folder} has {len(ids)} {kind}{'s' if len(ids) > 1 else ''} with {lacks}: {named}"
