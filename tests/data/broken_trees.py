"""Good trees in every layout, ways to break them, and what must come of each.

A case is a function that takes a good tree, breaks it, and returns `Reads` (what exactly) or `Refused` (in which
words).
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from trees import ade_tree, cityscapes_tree, save_gray, save_list, save_palette, voc_tree

from faircl.data.masks import VOID_COLOUR, voc_palette

Splits = dict[str, dict[str, np.ndarray]]  # split to id to mask (H, W) uint8, 255 being void
Found = tuple[str, str | None]  # kind and file of a finding


@dataclass
class Reads:
    """The tree is read, and these are its masks.

    `skipped`: files that must be counted and named, by split. `found`: what a check finds none the less. `leaked`: of
    the only step.
    """

    masks: Splits
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    found: set[Found] = field(default_factory=set)
    leaked: float = 0.0
    settings: tuple[str, ...] = ()


@dataclass
class Refused:
    """The tree is refused in one sentence with these words; a check finds this, or refuses too where it is None."""

    words: tuple[str, ...]
    found: set[Found] | None
    settings: tuple[str, ...] = ()
    root: Path | None = None


class Tree(NamedTuple):
    """A good tree: its reader, how it is made, what it holds, and the first training pair's files."""

    reader: str
    make: Callable[[Path], Path]
    masks: Splits
    mask: str
    image: str
    settings: tuple[str, ...] = ()

    @property
    def train(self) -> str:
        return next(iter(self.masks))

    @property
    def test(self) -> str:
        return list(self.masks)[-1]

    def but(self, split: str, **changed: np.ndarray | None) -> Splits:
        """Return what it holds with some masks of a split changed, added, or left out."""
        masks = {name: dict(of_split) for name, of_split in self.masks.items()}
        masks[split] = {id: mask for id, mask in (masks[split] | changed).items() if mask is not None}
        return masks


class Case(NamedTuple):
    tree: Tree
    break_it: Callable[[Tree, Path], Reads | Refused]


CASES: dict[str, Case] = {}


def case(*names: str) -> Callable[[Any], Any]:
    """Add a function to the cases, once for each tree named."""

    def add(break_it: Callable[[Tree, Path], Reads | Refused]) -> Callable[[Tree, Path], Reads | Refused]:
        for name in names:
            CASES[f"{name}-{break_it.__name__}"] = Case(TREES[name], break_it)
        return break_it

    return add


# ---- good trees


def numbers(values: Sequence[int], shape: tuple[int, int], seed: int) -> np.ndarray:
    """Mask that holds every value, the first ones more often."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.resize(np.array(values, np.uint8), shape[0] * shape[1])).reshape(shape)


def four(values: Sequence[int], shape: tuple[int, int], splits: Sequence[str], ids: Sequence[str]) -> Splits:
    """Two masks for each of two splits."""
    masks = {id: numbers(values, shape, seed) for seed, id in enumerate(ids)}
    return {split: {id: masks[id] for id in ids[2 * k : 2 * k + 2]} for k, split in enumerate(splits)}


def photo(path: Path, mask: np.ndarray, **options: Any) -> Path:
    """Save an image of a mask's size; no two names get the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(zlib.crc32(os.fsencode(path.name)))
    Image.fromarray(rng.integers(0, 256, (*mask.shape, 3), np.uint8)).save(path, **options)
    return path


def painted(mask: np.ndarray, colours: Sequence[tuple[int, int, int]], void: tuple[int, int, int]) -> np.ndarray:
    table = np.zeros((256, 3), np.uint8)
    table[: len(colours)] = colours
    table[255] = void
    return table[mask]


def save_rgb(path: Path, rgb: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rgb).save(path)
    return path


def each(masks: Splits) -> list[tuple[str, str, np.ndarray]]:
    return [(split, id, mask) for split, of_split in masks.items() for id, mask in of_split.items()]


def folder(root: Path) -> Path:
    for split, id, mask in each(FOLDER):
        save_palette(root / f"masks/{split}/{id}.png", mask)
        photo(root / f"images/{split}/{id}.png", mask)
    (root / "classes.txt").write_text("background\ncat\ndog\n")
    return root


def voc(root: Path) -> Path:
    made = voc_tree(root, VOC, images=False)
    for _, id, mask in each(VOC):
        photo(made / f"JPEGImages/{id}.jpg", mask)
    return made


def ade(root: Path) -> Path:
    made = ade_tree(root, ADE, images=False)
    for split, id, mask in each(ADE):
        photo(made / f"images/{split}/{id}.jpg", mask)
    return made


def cityscapes(root: Path) -> Path:
    cityscapes_tree(root, STORED_CITIES, images=False, companions=())
    for split, id, mask in each(CITIES):
        photo(root / f"leftImg8bit/{split}/{id}_leftImg8bit.png", mask)
    return root


def camvid(root: Path) -> Path:
    for _, id, mask in each(CAMVID):
        save_rgb(root / f"LabeledApproved_full/{id}_L.png", painted(mask, CAMVID_COLOURS, (0, 0, 0)))
        photo(root / f"701_StillsRaw_full/{id}.png", mask)
    return root


def segnet(root: Path) -> Path:
    for split, id, mask in each(SEGNET):
        save_gray(root / f"{split}annot/{id}.png", np.where(mask == 255, 11, mask).astype(np.uint8))
        photo(root / f"{split}/{id}.png", mask)
    return root


def cvat(root: Path) -> Path:
    root.mkdir(parents=True)
    (root / "labelmap.txt").write_text(
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncar:9,0,0::\nbus:0,9,0::\n"
    )
    for split, id, mask in each(CVAT):
        save_rgb(root / f"SegmentationClass/{id}.png", painted(mask, CVAT_COLOURS, (1, 1, 1)))
        photo(root / f"JPEGImages/{id}.jpg", mask)
        save_list(root / f"ImageSets/Segmentation/{split}.txt", CVAT[split])
    return root


def panoptic(root: Path) -> Path:
    for split, of_split in PANOPTIC.items():
        for id, mask in of_split.items():
            save_segments(root, split, id, mask)
            photo(root / f"{split}/{id}.jpg", mask)
        write_json(root, split, panoptic_json(of_split))
    return root


def save_segments(root: Path, split: str, id: str, mask: np.ndarray) -> None:
    """Paint class k as segment 300 + k, R + 256·G, and void as segment 0."""
    segments = np.where(mask == 255, 0, 300 + mask.astype(int))
    rgb = np.stack([segments % 256, segments // 256, segments * 0], -1).astype(np.uint8)
    save_rgb(root / f"annotations/panoptic_{split}/{id}.png", rgb)


def panoptic_json(masks: Mapping[str, np.ndarray]) -> dict[str, Any]:
    infos = [{"id": 300 + k, "category_id": category["id"]} for k, category in enumerate(CATEGORIES)]
    return {
        "categories": CATEGORIES,
        "images": [{"id": number, "file_name": f"{id}.jpg"} for number, id in enumerate(masks)],
        "annotations": [
            {"image_id": number, "file_name": f"{id}.png", "segments_info": infos} for number, id in enumerate(masks)
        ],
    }


def write_json(root: Path, split: str, tree: Any) -> None:
    (root / f"annotations/panoptic_{split}.json").write_text(json.dumps(tree))


def stuff(root: Path) -> Path:
    stored = np.array([*USED_STUFF, *[0] * (255 - len(USED_STUFF)), 255], np.uint8)
    for split, id, mask in each(STUFF):
        save_gray(root / f"stuffthingmaps/{split}/{id}.png", stored[mask])
        photo(root / f"{split}/{id}.jpg", mask)
    return root


FOLDER = four([0, 1, 2, 255], (4, 6), ("train", "test"), "abcd")
VOC = four([*range(21), 255], (5, 6), ("train", "val"), ("2007_a", "2007_b", "2008_c", "2008_d"))
ADE = four(range(151), (13, 12), ("training", "validation"), ("t_1", "t_2", "v_1", "v_2"))
# Cityscapes as stored, and the same by train id; 29 and 30 are caravan and trailer, void.
LABEL_IDS = [7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33]
STORED_CITIES = four(
    range(34), (6, 6), ("train", "val"), ("aachen/aachen_1", "bremen/bremen_1", "munster/munster_1", "ulm/ulm_1")
)
TO_TRAIN_ID = np.array([LABEL_IDS.index(label) if label in LABEL_IDS else 255 for label in range(256)], np.uint8)
CITIES = {split: {id: TO_TRAIN_ID[mask] for id, mask in masks.items()} for split, masks in STORED_CITIES.items()}
# Sky, Building, Column_Pole, Road, Sidewalk, Tree, SignSymbol, Fence, Car, Pedestrian, Bicyclist
CAMVID_COLOURS = [
    *((128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (0, 0, 192), (128, 128, 0)),
    *((192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192)),
]
CAMVID = four(
    [*range(11), 255],
    (4, 6),
    ("train", "test"),
    ("0006R0_f00930", "0006R0_f00960", "Seq05VD_f00000", "Seq05VD_f00030"),
)
SEGNET = four([*range(11), 255], (4, 6), ("train", "test"), "abcd")
CVAT_COLOURS = [(0, 0, 0), (9, 0, 0), (0, 9, 0)]
CVAT = four(range(3), (4, 6), ("train", "test"), "abcd")
CATEGORIES = [{"id": 3, "name": "car"}, {"id": 17, "name": "cat"}, {"id": 200, "name": "sky"}]
PANOPTIC = four([0, 1, 2, 255], (4, 6), ("train2017", "val2017"), "abcd")
USED_STUFF = [value for value in range(182) if value not in (11, 25, 28, 29, 44, 65, 67, 68, 70, 82, 90)]
STUFF = four([*range(171), 255], (12, 15), ("train2017", "val2017"), "abcd")

TREES = {
    "folder": Tree("folder", folder, FOLDER, "masks/train/a.png", "images/train/a.png"),
    "voc": Tree("voc", voc, VOC, "SegmentationClass/2007_a.png", "JPEGImages/2007_a.jpg", ("data.train=train",)),
    "ade": Tree("ade", ade, ADE, "annotations/training/t_1.png", "images/training/t_1.jpg"),
    "cityscapes": Tree(
        "cityscapes",
        cityscapes,
        CITIES,
        "gtFine/train/aachen/aachen_1_gtFine_labelIds.png",
        "leftImg8bit/train/aachen/aachen_1_leftImg8bit.png",
    ),
    "camvid": Tree(
        "camvid",
        camvid,
        CAMVID,
        "LabeledApproved_full/0006R0_f00930_L.png",
        "701_StillsRaw_full/0006R0_f00930.png",
    ),
    "segnet": Tree("camvid", segnet, SEGNET, "trainannot/a.png", "train/a.png"),
    "cvat": Tree("cvat", cvat, CVAT, "SegmentationClass/a.png", "JPEGImages/a.jpg"),
    "panoptic": Tree("coco-panoptic", panoptic, PANOPTIC, "annotations/panoptic_train2017/a.png", "train2017/a.jpg"),
    "stuff": Tree("coco-stuff", stuff, STUFF, "stuffthingmaps/train2017/a.png", "train2017/a.jpg"),
}
EVERY = tuple(TREES)
INDEXED = ("folder", "voc", "ade", "cityscapes", "segnet", "stuff")
PAINTED = ("camvid", "cvat", "panoptic")


# ---- pictures no library writes


def png(
    mask: np.ndarray,
    depth: int = 8,
    interlaced: bool = False,
    parts: int = 1,
    level: int = 9,
    size: tuple[int, int] | None = None,
) -> bytes:
    """Grey PNG of 1 to 8 bits, row after row or in Adam7's seven passes, its data in one chunk or several.

    `size`: height and width that the header claims; `level`: 0 stores the rows as they are.
    """
    places = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    passes = [mask[y::dy, x::dx] for y, x, dy, dx in places] if interlaced else [mask]
    rows = b"".join(b"\0" + _packed(row, depth) for part in passes if part.size for row in part)
    data = zlib.compress(rows, level)
    cuts = [len(data) * part // parts for part in range(parts + 1)]
    high, wide = size or mask.shape
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", wide, high, depth, 0, 0, 0, interlaced))]
    chunks += [(b"IDAT", data[start:end]) for start, end in pairwise(cuts)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in [*chunks, (b"IEND", b"")]
    )


def _packed(row: np.ndarray, depth: int) -> bytes:
    return np.packbits(np.unpackbits(row[:, None], axis=1)[:, 8 - depth :].ravel()).tobytes()


# ---- roots


@case(*EVERY)
def root_missing(tree: Tree, root: Path) -> Refused:
    return Refused(("nowhere", "does not exist", "expected"), None, root=root / "nowhere")


@case(*EVERY)
def root_is_a_file(tree: Tree, root: Path) -> Refused:
    (root / "file").touch()
    return Refused((f"{root / 'file'} is not a folder", "expected"), None, root=root / "file")


@case(*EVERY)
def root_is_empty(tree: Tree, root: Path) -> Refused:
    (root / "hollow").mkdir()
    return Refused((str(root / "hollow"), "expected"), None, root=root / "hollow")


@case(*EVERY)
def root_is_a_link_with_a_space(tree: Tree, root: Path) -> Reads:
    os.rename(root, root.parent / "far away é")
    root.symlink_to(root.parent / "far away é", target_is_directory=True)
    return Reads(tree.masks)


# ---- mask files


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
    colours[255] = VOID_COLOUR
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
    return Reads(tree.masks, settings=("data.void_colour=[1,1,1]",))


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
    void = np.full_like(np.asarray(Image.open(root / tree.mask)), 255)
    save_gray(root / tree.mask, void)
    id = next(iter(tree.masks[tree.train]))
    return Reads(tree.but(tree.train, **{id: void}), found={("void-mask", tree.mask)})


# ---- names


ODD = ("with space", "é 汉字 🙂", "many.dots.v1.2", "UPPER", "upper", "-dash", "100%", "[a]", "#1", "q" * 200)


@case("folder")
def odd_names(tree: Tree, root: Path) -> Reads:
    mask = FOLDER["train"]["a"]
    for id in ODD:
        save_palette(root / f"masks/train/{id}.png", mask)
        photo(root / f"images/train/{id}.jpg", mask)
    return Reads(tree.but("train", **dict.fromkeys(ODD, mask)))


@case("voc", "cvat")
def odd_names_in_a_list(tree: Tree, root: Path) -> Reads:
    first = next(iter(tree.masks["train"]))
    for id in ODD:
        shutil.copy(root / tree.mask, root / f"SegmentationClass/{id}.png")
        photo(root / f"JPEGImages/{id}.jpg", tree.masks["train"][first])
    save_list(root / "ImageSets/Segmentation/train.txt", [*tree.masks["train"], *ODD])
    return Reads(tree.but("train", **dict.fromkeys(ODD, tree.masks["train"][first])))


@case("cityscapes")
def odd_cities(tree: Tree, root: Path) -> Reads:
    stored, id = STORED_CITIES["train"]["aachen/aachen_1"], "bad é/b.1_2"
    save_gray(root / f"gtFine/train/{id}_gtFine_labelIds.png", stored)
    photo(root / f"leftImg8bit/train/{id}_leftImg8bit.png", stored)
    return Reads(tree.but("train", **{id: TO_TRAIN_ID[stored]}))


@case("folder")
def name_with_a_line_break(tree: Tree, root: Path) -> Refused:
    os.rename(root / "masks/train/a.png", root / "masks/train/a\nb.png")
    return Refused(
        ("1 image with no mask: images/train/a.png",), {("no-mask", tree.image), ("no-image", "masks/train/a\nb.png")}
    )


@case("folder")
def broken_mask_with_a_line_break_in_its_name(tree: Tree, root: Path) -> Refused:
    for kind in ("images", "masks"):
        os.rename(root / f"{kind}/train/a.png", root / f"{kind}/train/a\nb.png")
    (root / "masks/train/a\nb.png").write_bytes(b"x")
    return Refused(("cannot be decoded",), {("unreadable-mask", "masks/train/a\nb.png")})


@case("folder", "segnet", "stuff")
def same_name_in_other_case(tree: Tree, root: Path) -> Refused:
    """An image called A for a mask called a."""
    image = root / tree.image
    other = image.with_name(f"A{image.suffix}")
    os.rename(image, other)
    mask = {("no-mask", other.relative_to(root).as_posix()), ("no-image", tree.mask)}
    return Refused(("1 image with no mask", other.relative_to(root).as_posix()), mask)


@case(*EVERY)
def upper_case_extensions(tree: Tree, root: Path) -> Reads:
    for path in (root / tree.mask, root / tree.image):
        os.rename(path, path.with_suffix(path.suffix.upper()))
    return Reads(tree.masks)


@case("folder", "voc", "ade", "stuff", "panoptic", "cvat")
def images_called_jpeg(tree: Tree, root: Path) -> Reads:
    mask = next(iter(tree.masks[tree.train].values()))
    (root / tree.image).unlink()
    photo((root / tree.image).with_suffix(".JPEG"), mask)
    return Reads(tree.masks)


@case(*EVERY)
def a_mask_twice_in_two_spellings(tree: Tree, root: Path) -> Refused:
    mask = root / tree.mask
    shutil.copy(mask, mask.with_suffix(".PNG"))
    return Refused((mask.with_suffix(".PNG").name, mask.name, "remove one"), {("unlisted-split", None)})


@case("folder", "ade", "segnet", "stuff", "cvat", "panoptic", "cityscapes", "camvid")
def two_images_with_one_id(tree: Tree, root: Path) -> Refused:
    image = root / tree.image
    other = image.with_suffix(".bmp")
    photo(other, next(iter(tree.masks[tree.train].values())))
    return Refused((image.name, other.name, "remove one"), {("unlisted-split", None)})


@case(*EVERY)
def hidden_and_foreign_files_among_masks(tree: Tree, root: Path) -> Reads:
    folder = Path(tree.mask).parent
    names = [f"{folder.as_posix()}/{name}" for name in ("._a.png", ".DS_Store", "Thumbs.db", "readme.txt")]
    for name in names:
        (root / name).write_bytes(b"x")
    alike = tree.reader in ("voc", "cvat") or folder.name == "LabeledApproved_full"  # one folder for both splits
    return Reads(tree.masks, skipped=dict.fromkeys(tree.masks if alike else (tree.train,), names))


@case(*EVERY)
def hidden_and_foreign_files_among_images(tree: Tree, root: Path) -> Reads:
    folder = Path(tree.image).parent
    names = [f"{folder.as_posix()}/{name}" for name in ("._a.png", ".DS_Store", "Thumbs.db", "a.heic")]
    for name in names:
        (root / name).write_bytes(b"x")
    alike = tree.reader in ("voc", "cvat") or folder.name == "701_StillsRaw_full"
    return Reads(tree.masks, skipped=dict.fromkeys(tree.masks if alike else (tree.train,), names))


@case("folder", "ade")
def masks_in_a_hidden_folder(tree: Tree, root: Path) -> Reads:
    hidden = (root / tree.mask).parent / ".trash"
    hidden.mkdir()
    shutil.copy(root / tree.mask, hidden / "old.png")
    return Reads(tree.masks, skipped={tree.train: [(hidden / "old.png").relative_to(root).as_posix()]})


@case("folder", "ade", "stuff", "segnet", "cvat", "panoptic")
def masks_in_nested_folders(tree: Tree, root: Path) -> Reads:
    id = next(iter(tree.masks[tree.train]))
    for name in (tree.mask, tree.image):
        path = root / name
        (path.parent / "x y/ü").mkdir(parents=True)
        os.rename(path, path.parent / "x y/ü" / path.name)
    text = json.dumps if tree.reader == "coco-panoptic" else str
    for path in (root / "ImageSets/Segmentation/train.txt", root / "annotations/panoptic_train2017.json"):
        if path.exists() and text is str:
            save_list(path, ["b", f"x y/ü/{id}"])
        elif path.exists():
            write_json(root, tree.train, panoptic_json({"b": 0, f"x y/ü/{id}": 0}))  # type: ignore[dict-item]
    return Reads(tree.but(tree.train, **{id: None, f"x y/ü/{id}": tree.masks[tree.train][id]}))


# ---- links and folders


@case(*EVERY)
def linked_files(tree: Tree, root: Path) -> Reads:
    for number, name in enumerate((tree.mask, tree.image)):
        shutil.move(root / name, root.parent / f"far {number}")
        (root / name).symlink_to(root.parent / f"far {number}")
    return Reads(tree.masks)


@case(*EVERY)
def linked_folders(tree: Tree, root: Path) -> Reads:
    for number, name in enumerate((tree.mask, tree.image)):
        shutil.move((root / name).parent, root.parent / f"far {number}")
        (root / name).parent.symlink_to(root.parent / f"far {number}", target_is_directory=True)
    return Reads(tree.masks)


@case(*EVERY)
def dangling_mask(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).unlink()
    (root / tree.mask).symlink_to(root / "gone")
    return Refused((str(root / tree.mask), "No such file", "check that it exists"), {("no-mask", tree.mask)})


@case("folder", "ade")
def dangling_folder_among_masks(tree: Tree, root: Path) -> Reads:
    link = (root / tree.mask).parent / "more"
    link.symlink_to(root / "gone", target_is_directory=True)
    return Reads(tree.masks, skipped={tree.train: [link.relative_to(root).as_posix()]})


@case("folder")
def mask_that_is_a_link_to_itself(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).unlink()
    (root / tree.mask).symlink_to("a.png")
    return Refused((str(root / tree.mask), "Too many levels of symbolic links"), {("no-mask", tree.mask)})


@case("folder", "ade")
def a_folder_called_like_a_mask(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).unlink()
    (root / tree.mask).mkdir()
    return Refused(("1 image with no mask", tree.image), {("no-mask", tree.image), ("single-image", None)})


# ---- splits and pairs


@case("folder", "ade", "segnet", "stuff")
def empty_split(tree: Tree, root: Path) -> Refused:
    for name in (tree.mask, tree.image):
        for path in (root / name).parent.iterdir():
            path.unlink()
    return Refused((f"Split '{tree.train}'", "is empty"), {("empty-split", None)})


@case("cityscapes")
def empty_split_of_cities(tree: Tree, root: Path) -> Refused:
    for kind in ("gtFine", "leftImg8bit"):
        shutil.rmtree(root / kind / "train")
        (root / kind / "train").mkdir()
    return Refused((str(root / "gtFine/train"), "has no mask", "labelIds"), {("unlisted-split", None)})


@case(*EVERY)
def split_not_there(tree: Tree, root: Path) -> Refused:
    words = ("no list" if tree.reader in ("voc", "cvat") else "no split", "tset")
    return Refused(words, {("unlisted-split", None)}, settings=("data.test=tset",))


@case("folder", "ade", "segnet", "stuff")
def one_image_only(tree: Tree, root: Path) -> Reads:
    second = list(tree.masks[tree.train])[1]
    for name in (tree.mask, tree.image):
        path = root / name
        path.with_name(f"{second}{path.suffix}").unlink()
    return Reads(tree.but(tree.train, **{second: None}), found={("single-image", None)})


@case("folder")
def mask_without_image_in_a_folder(tree: Tree, root: Path) -> Refused:
    (root / tree.image).unlink()
    return Refused(("1 mask with no image: masks/train/a.png", "add images or remove masks"), {("no-image", tree.mask)})


@case(*(name for name in EVERY if name != "folder"))
def mask_without_image(tree: Tree, root: Path) -> Reads:
    (root / tree.image).unlink()
    return Reads(tree.masks, found={("no-image", tree.mask)})


@case(*EVERY)
def no_images_at_all(tree: Tree, root: Path) -> Reads:
    top = {"701_StillsRaw_full", "train", "test", "train2017", "val2017", "images", "leftImg8bit", "JPEGImages"}
    for name in top:
        shutil.rmtree(root / name, ignore_errors=True)
    data = {path.relative_to(root).as_posix() for path in root.rglob("*.png")}
    return Reads(tree.masks, found={("no-image", name) for name in data})


@case("folder", "ade", "segnet", "stuff", "camvid", "cityscapes")
def image_without_mask(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).unlink()
    return Refused(("1 image with no mask", tree.image), {("no-mask", tree.image), ("single-image", None)})


@case("cvat")
def listed_image_nobody_has_annotated(tree: Tree, root: Path) -> Reads:
    (root / tree.mask).unlink()
    return Reads(tree.but("train", a=None), skipped={"train": ["JPEGImages/a.jpg"]}, found={("single-image", None)})


@case("cvat")
def files_no_list_names(tree: Tree, root: Path) -> Reads:
    shutil.copy(root / tree.mask, root / "SegmentationClass/new.png")
    photo(root / "JPEGImages/new.jpg", CVAT["train"]["a"])
    names = ["SegmentationClass/new.png", "JPEGImages/new.jpg"]
    return Reads(tree.masks, skipped={"train": names, "test": names})


@case("panoptic")
def files_the_json_does_not_name(tree: Tree, root: Path) -> Reads:
    shutil.copy(root / tree.mask, root / "annotations/panoptic_train2017/new.png")
    photo(root / "train2017/new.jpg", CVAT["train"]["a"])
    names = ["annotations/panoptic_train2017/new.png", "train2017/new.jpg"]
    return Reads(tree.masks, skipped={"train2017": names})


@case("folder")
def mask_saved_as_tiff(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).unlink()
    Image.fromarray(FOLDER["train"]["a"]).save(root / "masks/train/a.tif")
    return Refused(
        ("1 image with no mask: images/train/a.png", "masks/train/a.png"),
        {("no-mask", tree.image), ("single-image", None)},
    )


@case("folder")
def mask_saved_as_jpg(tree: Tree, root: Path) -> Refused:
    os.rename(root / tree.mask, root / "masks/train/a.jpg")
    return Refused(
        ("1 image with no mask: images/train/a.png", "masks/train/a.png"),
        {("jpeg-mask", "masks/train/a.jpg"), ("single-image", None)},
    )


@case(*EVERY)
def test_split_is_the_training_split(tree: Tree, root: Path) -> Reads:
    masks = {tree.train: tree.masks[tree.train]}
    return Reads(masks, leaked=1.0, settings=(f"data.test={tree.train}",))


@case("folder", "ade")
def test_pair_is_a_link_to_a_training_pair(tree: Tree, root: Path) -> Reads:
    return _leak(tree, root, (tree.mask, tree.image))


@case("folder", "ade")
def test_image_is_a_link_to_a_training_image(tree: Tree, root: Path) -> Reads:
    """Its mask is a copy."""
    return _leak(tree, root, (tree.image,))


def _leak(tree: Tree, root: Path, linked: Sequence[str]) -> Reads:
    mask, third = next(iter(tree.masks[tree.train].values())), next(iter(tree.masks[tree.test]))
    for name in (tree.mask, tree.image):
        there = _in_test(root / name, tree)
        there.unlink()
        if name in linked:
            there.symlink_to(root / name)
        else:
            shutil.copy(root / name, there)
    found = _in_test(root / tree.image, tree).relative_to(root).as_posix()
    return Reads(tree.but(tree.test, **{third: mask}), leaked=0.5, found={("leak", found)})


def _in_test(path: Path, tree: Tree) -> Path:
    """Return the file of the first test image that belongs where this is of the first training image."""
    return path.parent.parent / tree.test / f"{next(iter(tree.masks[tree.test]))}{path.suffix}"


# ---- image files: masks are enough for a scenario, a check finds them


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


# ---- lists


def rewrite(root: Path, content: bytes, split: str = "train") -> str:
    (root / f"ImageSets/Segmentation/{split}.txt").write_bytes(content)
    return f"{split}.txt"


@case("voc", "cvat")
def missing_list(tree: Tree, root: Path) -> Refused:
    (root / "ImageSets/Segmentation/train.txt").unlink()
    return Refused(("has no list", "train.txt", tree.test), {("unlisted-split", None)})


@case("voc", "cvat")
def empty_list(tree: Tree, root: Path) -> Refused:
    rewrite(root, b"\n  \n")
    return Refused(("train", "is empty"), {("unlisted-split" if tree.reader == "voc" else "empty-split", None)})


@case("voc", "cvat")
def list_with_an_id_twice(tree: Tree, root: Path) -> Refused:
    first, second = tree.masks["train"]
    rewrite(root, f"{first}\n{second}\n{first}\n".encode())
    return Refused(("train.txt", f"'{first}' twice", "remove one"), {("unlisted-split", None)})


@case("voc", "cvat")
def list_that_names_what_is_nowhere(tree: Tree, root: Path) -> Refused:
    first, second = tree.masks["train"]
    rewrite(root, f"{first}\n{second}\nlost\n".encode())
    found = ("no-mask", "JPEGImages/lost.jpg") if tree.reader == "voc" else ("unlisted-split", None)
    return Refused(("train.txt", "1 id with", "lost", "SegmentationClass"), {found})


@case("voc")
def list_that_names_an_image_without_mask(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).unlink()
    words = ("train.txt", "1 id with no mask: 2007_a", str(root / tree.mask))
    return Refused(words, {("no-mask", tree.image), ("single-image", None)})


@case("voc", "cvat")
def list_with_bom_crlf_and_blanks(tree: Tree, root: Path) -> Reads:
    rewrite(root, b"\xef\xbb\xbf" + "".join(f"  {id} \t\r\n\r\n" for id in tree.masks["train"]).encode())
    return Reads(tree.masks)


@case("voc")
def list_of_two_paths(tree: Tree, root: Path) -> Reads:
    lines = (f"/JPEGImages/{id}.jpg /SegmentationClass/{id}.png" for id in tree.masks["train"])
    rewrite(root, "\r\n".join(lines).encode())
    return Reads(tree.masks)


@case("voc", "cvat")
def list_in_utf16(tree: Tree, root: Path) -> Refused:
    """As PowerShell writes it."""
    rewrite(root, "\r\n".join(tree.masks["train"]).encode("utf-16"))
    return Refused(("Cannot read", "train.txt", "not UTF-8"), {("unlisted-split", None)})


@case("voc", "cvat")
def list_that_is_a_folder(tree: Tree, root: Path) -> Refused:
    (root / "ImageSets/Segmentation/train.txt").unlink()
    (root / "ImageSets/Segmentation/train.txt").mkdir()
    return Refused(("train.txt is not a regular file",), {("unlisted-split", None)})


@case("voc", "cvat")
def list_that_is_a_fifo(tree: Tree, root: Path) -> Refused:
    """Nobody may be made to wait for what will never be written."""
    (root / "ImageSets/Segmentation/train.txt").unlink()
    os.mkfifo(root / "ImageSets/Segmentation/train.txt")
    return Refused(("train.txt", "not a regular file"), {("unlisted-split", None)})


@case("voc")
def no_list_of_the_augmented_split(tree: Tree, root: Path) -> Refused:
    return Refused(
        ("no list train_aug.txt", "faircl data prepare voc"), {("unlisted-split", None)}, ("data.train=train_aug",)
    )


@case("voc")
def augmented_masks_without_a_list(tree: Tree, root: Path) -> Reads:
    shutil.copytree(root / "SegmentationClass", root / "SegmentationClassAug")
    return Reads({"train_aug": VOC["train"], "val": VOC["val"]}, settings=("data.train=train_aug",))


# ---- classes.txt


@case("folder")
def classes_with_bom_crlf_and_blank_end(tree: Tree, root: Path) -> Reads:
    (root / "classes.txt").write_bytes(b"\xef\xbb\xbfbackground\r\n# comment\r\ncat \r\ndog\r\n\r\n\r\n")
    return Reads(tree.masks)


def _classes(root: Path, content: bytes, *words: str) -> Refused:
    (root / "classes.txt").write_bytes(content)
    return Refused((str(root / "classes.txt"), *words), None)


@case("folder")
def classes_with_a_blank_line(tree: Tree, root: Path) -> Refused:
    return _classes(root, b"background\n\ncat\ndog\n", "empty line", "id 1")


@case("folder")
def classes_with_a_name_twice(tree: Tree, root: Path) -> Refused:
    return _classes(root, b"background\ncat\ncat\n", "'cat' twice", "1 and 2")


@case("folder")
def classes_with_a_colour_twice(tree: Tree, root: Path) -> Refused:
    return _classes(root, b"background 0 0 0\ncat 1 1 1\ndog 1 1 1\n", "(1, 1, 1)", "'cat'", "'dog'")


@case("folder")
def classes_of_nothing(tree: Tree, root: Path) -> Refused:
    return _classes(root, b"", "names no class", "one class name per line")


@case("folder")
def classes_in_latin1(tree: Tree, root: Path) -> Refused:
    return _classes(root, b"background\ncaf\xe9\ndog\n", "not UTF-8")


@case("folder")
def classes_missing(tree: Tree, root: Path) -> Refused:
    (root / "classes.txt").unlink()
    return Refused(("has no classes.txt", "expected"), None)


@case("folder")
def classes_too_few(tree: Tree, root: Path) -> Refused:
    (root / "classes.txt").write_text("background\ncat\n")
    kinds = {("unknown-ids", f"masks/{split}/{id}.png") for split, id, _ in each(FOLDER)}
    return Refused(("value 2 in", "2 classes", "classes.txt", "add the missing classes"), kinds)


@case("folder")
def classes_too_many(tree: Tree, root: Path) -> Refused:
    (root / "classes.txt").write_text("background\ncat\ndog\nunicorn\n")
    return Refused(("without a single pixel", "unicorn"), set())


@case("folder")
def masks_without_split_folders(tree: Tree, root: Path) -> Refused:
    shutil.move(root / "masks/train/a.png", root / "masks/a.png")
    shutil.rmtree(root / "masks/train")
    return Refused(("'train'", str(root / "masks/train"), "needs both folders"), {("unlisted-split", None)})


# ---- ADE20K


@case("ade")
def ade_shifted_down_by_one(tree: Tree, root: Path) -> Refused:
    save_gray(root / tree.mask, ADE["training"]["t_1"] - np.uint8(1))  # 0 becomes 255
    return Refused((str(root / tree.mask), "value 255", "reduce_zero_label"), {("shifted-ids", tree.mask)})


# ---- Cityscapes


@case("cityscapes")
def only_train_ids(tree: Tree, root: Path) -> Reads:
    for path in root.rglob("*_labelIds.png"):
        save_gray(
            path.with_name(path.name.replace("labelIds", "labelTrainIds")), TO_TRAIN_ID[np.asarray(Image.open(path))]
        )
        path.unlink()
    return Reads(tree.masks)


@case("cityscapes")
def kinds_mixed_within_a_split(tree: Tree, root: Path) -> Refused:
    path = root / tree.mask
    os.rename(path, path.with_name(path.name.replace("labelIds", "labelTrainIds")))
    words = ("no labelIds mask: aachen/aachen_1", "no labelTrainIds mask: bremen/bremen_1", "same kind")
    return Refused(words, {("unlisted-split", None)})


@case("cityscapes")
def city_without_masks(tree: Tree, root: Path) -> Refused:
    shutil.rmtree(root / "gtFine/train/aachen")
    return Refused(("1 image with no mask", tree.image), {("no-mask", tree.image), ("single-image", None)})


@case("cityscapes")
def polygons_without_masks(tree: Tree, root: Path) -> Refused:
    path = root / tree.mask
    os.rename(path, path.with_name("aachen_1_gtFine_polygons.json"))
    return Refused(("no labelIds mask: aachen/aachen_1", "polygons"), {("unlisted-split", None)})


@case("cityscapes")
def coarse_in_place_of_fine(tree: Tree, root: Path) -> Refused:
    os.rename(root / "gtFine", root / "gtCoarse")
    return Refused(("has no gtFine", "expected gtFine"), None)


@case("cityscapes")
def label_ids_called_train_ids(tree: Tree, root: Path) -> Refused:
    for path in root.rglob("*_labelIds.png"):
        os.rename(path, path.with_name(path.name.replace("labelIds", "labelTrainIds")))
    names = {path.relative_to(root).as_posix() for path in root.rglob("*_labelTrainIds.png")}
    return Refused(("train ids go from 0 to 18", "wrong name"), {("unknown-ids", name) for name in names})


@case("cityscapes")
def train_ids_called_label_ids(tree: Tree, root: Path) -> Refused:
    """Every value is a labelId too, of another class: what gives them away is that none but 255 is above 18."""
    for path in root.rglob("*_labelIds.png"):
        save_gray(path, TO_TRAIN_ID[np.asarray(Image.open(path))])
    return Refused(("labelTrainIds",), set())


@case("cityscapes")
def image_without_the_usual_ending(tree: Tree, root: Path) -> Reads:
    image = root / tree.image
    os.rename(image, image.with_name("aachen_1.png"))
    name = "leftImg8bit/train/aachen/aachen_1.png"
    return Reads(tree.masks, skipped={"train": [name]}, found={("no-image", tree.mask)})


# ---- CamVid


@case("camvid")
def both_camvid_layouts(tree: Tree, root: Path) -> Refused:
    (root / "trainannot").mkdir()
    return Refused(("holds both", "SegNet"), None)


@case("camvid")
def camvid_names_of_no_split(tree: Tree, root: Path) -> Reads:
    shutil.copy(root / tree.mask, root / "LabeledApproved_full/other_1_L.png")
    photo(root / "701_StillsRaw_full/other_1.png", CAMVID["train"]["0006R0_f00930"])
    names = ["LabeledApproved_full/other_1_L.png", "701_StillsRaw_full/other_1.png"]
    return Reads(tree.masks, skipped={"train": names, "test": names})


@case("segnet")
def segnet_with_coloured_masks(tree: Tree, root: Path) -> Refused:
    save_rgb(root / tree.mask, painted(SEGNET["train"]["a"], CAMVID_COLOURS, (0, 0, 0)))
    return Refused((str(root / tree.mask), "colour picture"), {("rgb-mask", tree.mask)})


# ---- CVAT


@case("cvat")
def labelmap_malformed(tree: Tree, root: Path) -> Refused:
    (root / "labelmap.txt").write_text("background:0,0,0::\ncar;9;0;0\n")
    return Refused(("labelmap.txt", "'car;9;0;0'", "expected 'name:r,g,b:parts:actions'"), None)


@case("cvat")
def labelmap_lacks_a_class(tree: Tree, root: Path) -> Refused:
    (root / "labelmap.txt").write_text("background:0,0,0::\ncar:9,0,0::\n")
    names = {f"SegmentationClass/{id}.png" for _, id, _ in each(CVAT)}
    return Refused(("colour (0, 9, 0)", "labelmap.txt", "add it"), {("unknown-colours", name) for name in names})


@case("cvat")
def labelmap_in_latin1(tree: Tree, root: Path) -> Refused:
    (root / "labelmap.txt").write_bytes(b"caf\xe9:0,0,0::\n")
    return Refused(("labelmap.txt", "not UTF-8"), None)


@case("cvat")
def export_with_a_default_list_only(tree: Tree, root: Path) -> Refused:
    lists = root / "ImageSets/Segmentation"
    os.rename(lists / "train.txt", lists / "default.txt")
    (lists / "test.txt").unlink()
    return Refused(("has no list ImageSets/Segmentation/", "It has: default", "data.train"), {("unlisted-split", None)})


# ---- COCO


def _json(root: Path, **changed: Any) -> None:
    write_json(root, "train2017", panoptic_json(PANOPTIC["train2017"]) | changed)


@case("panoptic")
def json_cut_off(tree: Tree, root: Path) -> Refused:
    path = root / "annotations/panoptic_train2017.json"
    path.write_bytes(path.read_bytes()[:-40])
    return Refused((str(path), "not complete JSON"), None)


@case("panoptic")
def json_of_something_else(tree: Tree, root: Path) -> Refused:
    (root / "annotations/panoptic_train2017.json").write_text('{"info": {}, "annotations": []}')
    return Refused(("panoptic_train2017.json", "not a panoptic annotation file", "expected categories"), None)


@case("panoptic")
def json_without_segments(tree: Tree, root: Path) -> Refused:
    _json(root, annotations=[{"image_id": 0, "file_name": "a.png"}])
    return Refused(("panoptic_train2017.json", "segments_info"), {("unlisted-split", None)})


@case("panoptic")
def json_that_lacks_a_segment(tree: Tree, root: Path) -> Refused:
    annotations = panoptic_json(PANOPTIC["train2017"])["annotations"]
    annotations[0] = annotations[0] | {"segments_info": annotations[0]["segments_info"][1:]}
    _json(root, annotations=annotations)
    return Refused((str(root / tree.mask), "segment 300", "the JSON lists no such"), {("unknown-ids", tree.mask)})


@case("panoptic")
def json_with_other_categories(tree: Tree, root: Path) -> Refused:
    _json(root, categories=[*CATEGORIES[:2], {"id": 200, "name": "heaven"}])
    return Refused(("other categories", "panoptic_"), {("unlisted-split", None)})


@case("panoptic")
def json_with_a_segment_of_no_category(tree: Tree, root: Path) -> Refused:
    annotations = panoptic_json(PANOPTIC["train2017"])["annotations"]
    annotations[0] = annotations[0] | {"segments_info": [{"id": 300, "category_id": 99}]}
    _json(root, annotations=annotations)
    return Refused(("panoptic_train2017.json", "category 99", "add it"), {("unlisted-split", None)})


@case("panoptic")
def json_with_an_endless_number(tree: Tree, root: Path) -> Refused:
    path = root / "annotations/panoptic_train2017.json"
    path.write_text(path.read_text().replace('"category_id": 3', '"category_id": 1e999'))
    return Refused(("panoptic_train2017.json", "not a panoptic annotation file"), {("unlisted-split", None)})


@case("panoptic")
def json_with_a_bom(tree: Tree, root: Path) -> Reads:
    path = root / "annotations/panoptic_train2017.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return Reads(tree.masks)


@case("panoptic")
def json_that_names_a_missing_mask(tree: Tree, root: Path) -> Refused:
    (root / tree.mask).unlink()
    return Refused(("1 image with no mask", tree.image), {("no-mask", tree.image), ("single-image", None)})


@case("panoptic")
def panoptic_mask_in_grey(tree: Tree, root: Path) -> Refused:
    save_gray(root / tree.mask, PANOPTIC["train2017"]["a"])
    return Refused((str(root / tree.mask), "has segment"), {("unknown-ids", tree.mask)})


@case("stuff")
def stuff_with_a_number_never_used(tree: Tree, root: Path) -> Refused:
    mask = np.array(Image.open(root / tree.mask))
    mask[0, 0] = 11
    save_gray(root / tree.mask, mask)
    return Refused((str(root / tree.mask), "value 11 in 1 pixels", "ids less one"), {("unknown-ids", tree.mask)})


@case("stuff")
def stuff_with_masks_of_another_library(tree: Tree, root: Path) -> Reads:
    name = "stuffthingmaps/train2017/a_labelTrainIds.png"
    shutil.copy(root / tree.mask, root / name)
    return Reads(tree.masks, skipped={"train2017": [name]})
