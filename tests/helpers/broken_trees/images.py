"""Image files: masks are enough for a scenario, a check finds them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from .case import Reads, case
from .good import EVERY, FOLDER, VOC, Tree
from .pictures import photo


@case(*EVERY)
def truncated_image(tree: Tree, root: Path) -> Reads:
    path = root / tree.image
    path.write_bytes(path.read_bytes()[:-30])
    return Reads(tree.masks, found={("unreadable-image", tree.image)})


@case(*EVERY)
def image_of_another_size(tree: Tree, root: Path) -> Reads:
    photo(root / tree.image, np.zeros((7, 9)))
    return Reads(tree.masks, found={("size-mismatch", tree.mask)})


@case("folder", "voc")
def image_of_no_bytes(tree: Tree, root: Path) -> Reads:
    (root / tree.image).write_bytes(b"")
    return Reads(tree.masks, found={("unreadable-image", tree.image)})


@case("folder", "stuff")
def dangling_image(tree: Tree, root: Path) -> Reads:
    (root / tree.image).unlink()
    (root / tree.image).symlink_to(root / "gone")
    return Reads(tree.masks, found={("no-image", tree.image)})


@case("folder", "segnet")
def fifo_image(tree: Tree, root: Path) -> Reads:
    (root / tree.image).unlink()
    os.mkfifo(root / tree.image)
    return Reads(tree.masks, found={("unreadable-image", tree.image)})


@case("folder")
def animated_image(tree: Tree, root: Path) -> Reads:
    (root / tree.image).unlink()
    frames = [Image.open(photo(root.parent / f"{number}.png", FOLDER["train"]["a"])) for number in range(3)]
    frames[0].save(root / "images/train/a.gif", save_all=True, append_images=frames[1:])
    return Reads(tree.masks)


@case("folder")
def tiff_image_whose_header_lies(tree: Tree, root: Path) -> Reads:
    """It claims 9 bits for one of three channels."""
    (root / tree.image).unlink()
    path = photo(root / "images/train/a.tif", FOLDER["train"]["a"])
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<HHH", 8, 8, 8), struct.pack("<HHH", 9, 8, 8), 1))
    return Reads(tree.masks, found={("unreadable-image", "images/train/a.tif")})


@case("voc")
def image_that_is_no_jpeg(tree: Tree, root: Path) -> Reads:
    """VOC's images are JPEGs; where one is saved as PNG, it must be read or named."""
    photo((root / tree.image).with_suffix(".png"), VOC["train"]["2007_a"])
    (root / tree.image).unlink()
    return Reads(tree.masks)
