"""The folder layout, for data of one's own.

root/classes.txt             one class per line, line k is id k: ``name`` or ``name r g b``
root/images/{split}/**/x.jpg
root/masks/{split}/**/x.png
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from faircl.data.file_data import FileData
from faircl.data.images import RGB, ImageReading
from faircl.data.listing import IMAGE_SUFFIXES, Listing, describe_missing, list_pairs, open_root, subfolders
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import Colour, ColourTable, voc_palette
from faircl.errors import UserError, did_you_mean, listed
from faircl.readers.background import check_background, classes_with_background

CLASSES_FILE = "classes.txt"

_NAME_AND_COLOUR = re.compile(r"(.*\S)\s+(\d+)\s+(\d+)\s+(\d+)")
_LAYOUT = "expected classes.txt, images/{split}/ and masks/{split}/"


class FolderData(FileData):
    """Reader of the folder layout. The constructor reads classes.txt only; a split is listed on first use.

    An id is the path below masks/{split} without its extension, '/'-separated. `background`: ``auto`` (id 0 is
    background if that is its name), ``first`` (id 0 is) or ``none``. `ignore_colour`: the colour of ignored pixels in
    RGB-coded masks.
    """

    def __init__(
        self,
        root: str | Path,
        background: str = "auto",
        ignore_colour: Colour | None = None,
        images: ImageReading = RGB,
    ) -> None:
        super().__init__(open_root(root, _LAYOUT), images)
        check_background(background)
        missing = [] if os.path.isdir(self.root / "masks") else ["masks"]
        if missing and not os.path.isdir(self.root / "images"):
            missing.insert(0, "images")
        if not os.path.isfile(self.root / CLASSES_FILE):
            missing.insert(0, CLASSES_FILE)
        if missing:
            raise UserError(f"Data folder {self.root} has no {' and no '.join(missing)}; {_LAYOUT}.")
        names, colours = read_classes(self.root / CLASSES_FILE)
        self.classes = classes_with_background(names, background)
        table = ColourTable(colours, ignore_colour) if colours else None
        if colours:  # classes without a colour keep the default one
            self.palette = voc_palette(len(names)).copy()
            self.palette[list(colours.values())] = list(colours)
        self.coding = MaskCoding(len(names), table, listed_in=CLASSES_FILE)

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits with masks, sorted."""
        return tuple(sorted(subfolders(self.root / "masks")))

    def check_split(self, split: str) -> None:
        """Raise an error if there is no such split, or only its images."""
        splits = self.splits()
        if split in splits:
            return
        if os.path.isdir(self.root / "images" / split):
            raise UserError(
                f"Split '{split}' has {self.root / 'images' / split} but no {self.root / 'masks' / split}; "
                "a split needs both folders."
            )
        have = f"It has: {listed(splits)}." if splits else "It has none: make images/train and masks/train."
        raise UserError(f"Data folder {self.root} has no split '{split}'.{did_you_mean(split, splits)} {have}")

    def list_split(self, split: str) -> Listing:
        """Pair masks/{split} with images/{split}, which may be missing."""
        return list_pairs(self.root, f"images/{split}", f"masks/{split}")

    def check_listing(self, split: str, listing: Listing) -> None:
        """Raise an error for images without a mask, and for masks without an image unless the split has no images."""
        if listing.unmasked:
            expected = self.root / "masks" / os.path.splitext(listing.unmasked[0].removeprefix("images/"))[0]
            found = describe_missing(listing.unmasked, "image", "no mask")
            masks = {unicodedata.normalize("NFC", files.mask) for files in listing.files.values()}
            exists = unicodedata.normalize("NFC", expected.relative_to(self.root).as_posix() + ".png") in masks
            why = " (one is there whose name differs in its Unicode form alone: rename it)" if exists else ""
            raise UserError(f"{self.root} has {found}; expected {expected}.png{why}: add masks or remove images.")
        orphans = [files.mask for files in listing.files.values() if files.image is None]
        if orphans and len(orphans) < len(listing.files):
            expected = self.root / "images" / os.path.splitext(orphans[0].removeprefix("masks/"))[0]
            found = describe_missing(orphans, "mask", "no image")
            raise UserError(f"{self.root} has {found}; expected {expected}.jpg or alike: add images or remove masks.")
        super().check_listing(split, listing)

    def check_images(self, split: str) -> None:
        """Raise an error if images of a split are missing."""
        for part in split.split("+"):
            folder = self.root / "images" / part
            if not os.path.isdir(folder):
                raise UserError(
                    f"Split '{part}' has {self.root / 'masks' / part} but no {folder}; a split needs both folders."
                )
        if all(files.image is None for files in self.listing(split).files.values()):
            folder, kinds = self.root / "images" / split.split("+")[0], " ".join(sorted(IMAGE_SUFFIXES))
            raise UserError(f"Split '{split}' has masks but no image: {folder} holds none ({kinds}); put them there.")
        super().check_images(split)


def read_classes(path: Path) -> tuple[tuple[str, ...], dict[Colour, int]]:
    """Return names by id, and ids by colour, of a classes.txt. Lines that start with '#' are comments."""
    return parse_classes(dict(enumerate(class_lines(path))), path)


def class_lines(path: Path) -> list[str]:
    """Return the lines of a class list, stripped, without comments and empty lines at the end; at least one."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror or error
        raise UserError(f"Cannot read {path}: {why}; write one class name per line.") from error
    lines = "\n".join(line.strip() for line in lines if not line.lstrip().startswith("#")).rstrip().split("\n")
    if lines == [""]:
        raise UserError(f"{path} names no class; write one class name per line, line k being id k.")
    return lines


def parse_classes(lines: Mapping[int, str], path: Path) -> tuple[tuple[str, ...], dict[Colour, int]]:
    """Return names in the order of the lines, and ids by colour, of lines ``name`` or ``name r g b`` by id."""
    names: dict[str, int] = {}
    colours: dict[Colour, int] = {}
    for id, line in lines.items():
        name, *rgb = match.groups() if (match := _NAME_AND_COLOUR.fullmatch(line)) else (line,)
        if not name:  # skipping it would shift every later id
            raise UserError(f"{path} has an empty line where the name of id {id} is expected; name it or remove it.")
        if name in names:
            raise UserError(f"{path} names '{name}' twice, as ids {names[name]} and {id}; names must differ.")
        names[name] = id
        if rgb:
            colour = (int(rgb[0]), int(rgb[1]), int(rgb[2]))
            if max(colour) > 255:
                raise UserError(f"{path} gives '{name}' the colour {colour}; red, green and blue go from 0 to 255.")
            if colour in colours:
                other = next(key for key, value in names.items() if value == colours[colour])
                raise UserError(f"{path} gives colour {colour} to '{other}' and to '{name}'; change one.")
            colours[colour] = id
    return tuple(names), colours
