"""A good tree in every layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from trees import ade_tree, cityscapes_tree, save_gray, save_list, save_palette, voc_tree

from .pictures import painted, photo, save_rgb

Splits = dict[str, dict[str, np.ndarray]]  # split to id to mask (H, W) uint8, 255 being ignored


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


def numbers(values: Sequence[int], shape: tuple[int, int], seed: int) -> np.ndarray:
    """Mask that holds every value, the first ones more often."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.resize(np.array(values, np.uint8), shape[0] * shape[1])).reshape(shape)


def four(values: Sequence[int], shape: tuple[int, int], splits: Sequence[str], ids: Sequence[str]) -> Splits:
    """Two masks for each of two splits."""
    masks = {id: numbers(values, shape, seed) for seed, id in enumerate(ids)}
    return {split: {id: masks[id] for id in ids[2 * k : 2 * k + 2]} for k, split in enumerate(splits)}


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
    """Paint class k as segment 300 + k, R + 256·G, and ignored pixels as segment 0."""
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
# Cityscapes as stored, and the same by train id; 29 and 30 are caravan and trailer, ignored.
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
