"""Mask files: damaged, of another format, of other depths, colours or values."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image
from trees import save_gray

from faircl.data.masks import IGNORE_COLOUR, voc_palette

from .case import Reads, Refused, case
from .good import CVAT_COLOURS, EVERY, FOLDER, INDEXED, PAINTED, STORED_CITIES, TO_TRAIN_ID, VOC, Tree
from .pictures import painted, photo, png, save_rgb


@case(*EVERY)
def truncated_mask(tree: Tree, root: Path) -> Refused:
    path = root / tree.mask
    path.write_bytes(path.read_bytes()[:-30])
    return Refused((f"Mask {path} cannot be decoded", "copy or export it again"), {("unreadable-mask", tree.mask)})


@case(*EVERY)
def mask_of_no_bytes(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).write_bytes(b"")
    return Refused((str(root / tree.mask), "an empty file"), {("unreadable-mask", tree.mask)})


@case("folder", "cvat", "panoptic")
def text_called_png(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).write_text("version https://git-lfs.github.com/spec/v1\n")
    return Refused((str(root / tree.mask), "not a complete picture"), {("unreadable-mask", tree.mask)})


@case(*EVERY)
def jpeg_called_png(tree: Tree, root: Path) -> Refused:
    mask = np.asarray(Image.open(root / tree.mask))
    Image.fromarray(mask).save(root / tree.mask, format="JPEG")
    return Refused((str(root / tree.mask), "JPEG", "PNG"), {("jpeg-mask", tree.mask)})


@case("folder", "cityscapes", "stuff")
def photo_in_place_of_a_mask(tree: Tree, root: Path) -> Refused:
    mask = np.asarray(Image.open(root / tree.mask))
    photo(root / tree.mask, mask, format="JPEG")
    said = "JPEG" if tree.reader == "folder" else "colour picture"
    return Refused((str(root / tree.mask), said), {("jpeg-mask", tree.mask)})


@case(*INDEXED)
def sixteen_bits_with_good_ids(tree: Tree, root: Path) -> Reads:
    mask = np.asarray(Image.open(root / tree.mask)).astype(np.uint16)
    Image.fromarray(mask).save(root / tree.mask)
    return Reads(tree.masks)


@case("folder")
def sixteen_bits_with_deep_void(tree: Tree, root: Path) -> Reads:
    mask = FOLDER["train"]["a"].astype(np.uint16)
    Image.fromarray(np.where(mask == 255, np.uint16(65535), mask)).save(root / tree.mask)
    return Reads(tree.masks)


@case(*INDEXED)
def sixteen_bits_with_instances(tree: Tree, root: Path) -> Refused:
    mask = np.asarray(Image.open(root / tree.mask)).astype(np.uint16)
    mask[0, :2] = 26001
    Image.fromarray(mask).save(root / tree.mask)
    return Refused((str(root / tree.mask), "value 26001 in 2 pixels"), {("deep-ids", tree.mask)})


@case(*PAINTED)
def sixteen_bits_in_place_of_colours(tree: Tree, root: Path) -> Refused:
    Image.fromarray(np.zeros((4, 6), np.uint16)).save(root / tree.mask)
    return Refused((str(root / tree.mask), "expected 8-bit colours"), {("unreadable-mask", tree.mask)})


@case("folder")
def grey_of_one_two_and_four_bits(tree: Tree, root: Path) -> Reads:
    bits = FOLDER["train"]["a"] % 2
    two, whole = FOLDER["train"]["b"] % 3, FOLDER["test"]["c"] % 3
    (root / "masks/train/a.png").write_bytes(png(bits, 1))
    (root / "masks/train/b.png").write_bytes(png(two, 2))
    (root / "masks/test/c.png").write_bytes(png(whole, 4))
    return Reads({"train": {"a": bits, "b": two}, "test": {**FOLDER["test"], "c": whole}})


@case("voc")
def four_bits_in_voc(tree: Tree, root: Path) -> Reads:
    low = VOC["train"]["2007_a"] % 16
    (root / tree.mask).write_bytes(png(low, 4))
    return Reads(tree.but("train", **{"2007_a": low}))


@case("cityscapes")
def four_bits_in_cityscapes(tree: Tree, root: Path) -> Reads:
    low = STORED_CITIES["train"]["aachen/aachen_1"] % 16
    (root / tree.mask).write_bytes(png(low, 4))
    return Reads(tree.but("train", **{"aachen/aachen_1": TO_TRAIN_ID[low]}))


@case("folder")
def palette_of_two_bits(tree: Tree, root: Path) -> Reads:
    mask = FOLDER["train"]["a"] % 3
    image = Image.fromarray(mask)
    image.putpalette([0, 0, 0, 9, 9, 9, 50, 50, 50])
    image.save(root / tree.mask, bits=2)
    return Reads(tree.but("train", a=mask))


def resorted(mask: np.ndarray, colours: np.ndarray) -> Image.Image:
    """The same colours as a palette in the opposite order, as an editor may write it."""
    values, places = np.unique(mask, return_inverse=True)
    image = Image.fromarray((len(values) - 1 - places.reshape(mask.shape)).astype(np.uint8))
    image.putpalette(colours[values[::-1]].tobytes())
    return image


def voc_colours() -> np.ndarray:
    colours = voc_palette(256).copy()
    colours[255] = IGNORE_COLOUR
    return colours


@case("voc")
def palette_resorted_by_an_editor(tree: Tree, root: Path) -> Reads:
    resorted(VOC["train"]["2007_a"], voc_colours()).save(root / tree.mask)
    return Reads(tree.masks)


@case("folder")
def palette_resorted_with_colours_listed(tree: Tree, root: Path) -> Reads:
    (root / "classes.txt").write_text("background 0 0 0\ncat 9 0 0\ndog 0 9 0\n")
    colours = painted(np.arange(256, dtype=np.uint8), CVAT_COLOURS, (1, 1, 1))
    resorted(FOLDER["train"]["a"], colours).save(root / tree.mask)
    return Reads(tree.masks, settings=("data.ignore_colour=[1,1,1]",))


@case("camvid", "cvat")
def palette_resorted_of_painted_masks(tree: Tree, root: Path) -> Reads:
    Image.open(root / tree.mask).quantize(12).save(root / tree.mask)
    return Reads(tree.masks)


@case("folder", "voc")
def palette_of_other_colours(tree: Tree, root: Path) -> Reads:
    mask = next(iter(tree.masks[tree.train].values()))
    image = Image.fromarray(mask)
    image.putpalette((np.arange(768) % 251 + 3).astype(np.uint8).tobytes())
    image.save(root / tree.mask)
    return Reads(tree.masks)


@case("voc")
def rgb_in_the_right_colours(tree: Tree, root: Path) -> Reads:
    save_rgb(root / tree.mask, voc_colours()[VOC["train"]["2007_a"]])
    return Reads(tree.masks)


@case("voc", "camvid", "cvat")
def rgb_in_other_colours(tree: Tree, root: Path) -> Refused:
    shape = np.asarray(Image.open(root / tree.mask)).shape[:2]
    save_rgb(root / tree.mask, np.full((*shape, 3), 77, np.uint8))
    found = "grey-rgb-mask" if tree.reader == "voc" else "unknown-colours"
    return Refused((str(root / tree.mask), "(77, 77, 77)"), {(found, tree.mask)})


@case("folder", "ade")
def rgb_where_no_class_has_a_colour(tree: Tree, root: Path) -> Refused:
    photo(root / tree.mask, np.asarray(Image.open(root / tree.mask)))
    return Refused((str(root / tree.mask), "RGB", "index PNG"), {("rgb-mask", tree.mask)})


@case("folder", "ade", "segnet")
def grey_saved_as_rgb(tree: Tree, root: Path) -> Refused:
    mask = np.asarray(Image.open(root / tree.mask))
    save_rgb(root / tree.mask, np.repeat(mask[..., None], 3, axis=2))
    return Refused((str(root / tree.mask), "picture"), {("grey-rgb-mask", tree.mask)})


@case("camvid", "cvat", "panoptic")
def rgba_opaque(tree: Tree, root: Path) -> Reads:
    Image.open(root / tree.mask).convert("RGBA").save(root / tree.mask)
    return Reads(tree.masks)


@case("folder")
def grey_with_opaque_alpha(tree: Tree, root: Path) -> Reads:
    Image.fromarray(FOLDER["train"]["a"]).convert("LA").save(root / tree.mask)
    return Reads(tree.masks)


@case("folder", "voc", "camvid", "cvat", "panoptic")
def rgba_transparent(tree: Tree, root: Path) -> Refused:
    image = Image.open(root / tree.mask).convert("RGBA")
    image.putpixel((1, 0), (0, 0, 0, 0))
    image.save(root / tree.mask)
    return Refused((str(root / tree.mask), "transparent", "alpha"), {("unreadable-mask", tree.mask)})


@case("folder")
def interlaced_and_in_several_chunks(tree: Tree, root: Path) -> Reads:
    (root / "masks/train/a.png").write_bytes(png(FOLDER["train"]["a"], interlaced=True))
    (root / "masks/train/b.png").write_bytes(png(FOLDER["train"]["b"], parts=5))
    (root / "masks/test/c.png").write_bytes(png(FOLDER["test"]["c"], interlaced=True, parts=3))
    return Reads(tree.masks)


@case("folder", "voc")
def flipped_bit(tree: Tree, root: Path) -> Refused:
    """The rows are stored as they are, so that nothing but the checksum of the chunk tells."""
    mask = next(iter(tree.masks[tree.train].values()))
    stored = bytearray(png(mask, level=0))
    stored[stored.index(mask[0].tobytes())] ^= 1
    (root / tree.mask).write_bytes(stored)
    return Refused((str(root / tree.mask), "cannot be decoded"), {("unreadable-mask", tree.mask)})


@case("folder")
def fewer_rows_than_the_header_claims(tree: Tree, root: Path) -> Refused:
    """Filled up with zeros, the missing rows would be background."""
    (root / tree.mask).write_bytes(png(FOLDER["train"]["a"][:2], size=(4, 6)))
    return Refused((str(root / tree.mask), "cannot be decoded"), {("unreadable-mask", tree.mask)})


@case("folder", "camvid")
def header_of_a_giant(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).write_bytes(png(np.zeros((4, 6), np.uint8), size=(2**31 - 1, 2**31 - 1)))
    return Refused((str(root / tree.mask), "too large"), {("unreadable-mask", tree.mask)})


@case("folder")
def animated_png_mask(tree: Tree, root: Path) -> Reads:
    first, second = (Image.fromarray(FOLDER["train"][id]) for id in "ab")
    first.save(root / tree.mask, save_all=True, append_images=[second])
    return Reads(tree.masks)


@case("folder", "cityscapes")
def fifo_mask(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).unlink()
    os.mkfifo(root / tree.mask)
    return Refused((str(root / tree.mask), "not a regular file"), {("unreadable-mask", tree.mask)})


@case("folder", "voc")
def unreadable_mask(tree: Tree, root: Path) -> Refused:
    """Skipped for root, who may read everything."""
    (root / tree.mask).chmod(0)
    return Refused((str(root / tree.mask), "Permission denied", "permissions"), {("unreadable-mask", tree.mask)})


@case("folder", "voc", "ade", "segnet", "stuff")
def ids_above_the_classes(tree: Tree, root: Path) -> Refused:
    mask = np.array(Image.open(root / tree.mask))
    mask[0, 0] = 200
    save_gray(root / tree.mask, mask)
    return Refused((str(root / tree.mask), "value 200 in 1 pixels"), {("unknown-ids", tree.mask)})


@case("folder", "voc", "segnet", "stuff")
def all_void(tree: Tree, root: Path) -> Reads:
    ignored = np.full_like(np.asarray(Image.open(root / tree.mask)), 255)
    save_gray(root / tree.mask, ignored)
    id = next(iter(tree.masks[tree.train]))
    return Reads(tree.but(tree.train, **{id: ignored}), found={("ignored-mask", tree.mask)})
