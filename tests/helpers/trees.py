"""Tiny trees in the layouts of the known data sets. Each function takes a folder to fill and masks by split and id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from faircl.data.masks import write_mask

Masks = Mapping[str, np.ndarray]  # id to (H, W) uint8, as stored


def picture(mask: np.ndarray) -> np.ndarray:
    """Image (H, W, 3) of a mask's size; every pixel differs."""
    return np.arange(mask.size * 3, dtype=np.uint8).reshape(*mask.shape, 3)


def save_image(path: Path, mask: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(mask)).save(path)


def save_palette(path: Path, mask: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_mask(path, mask)


def save_gray(path: Path, mask: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(mask).save(path)


def save_list(path: Path, ids: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{id}\n" for id in ids), encoding="utf-8")


def voc_tree(root: Path, lists: Mapping[str, Masks], augmented: Masks | None = None, images: bool = True) -> Path:
    """VOCdevkit/VOC2012 with lists and palette masks in SegmentationClass; `augmented` fills SegmentationClassAug.

    Returns the folder VOC2012. train_aug gets no list.
    """
    voc = root / "VOCdevkit" / "VOC2012"
    for split, masks in lists.items():
        save_list(voc / "ImageSets" / "Segmentation" / f"{split}.txt", masks)
        for id, mask in masks.items():
            save_palette(voc / "SegmentationClass" / f"{id}.png", mask)
    for id, mask in (augmented or {}).items():
        save_palette(voc / "SegmentationClassAug" / f"{id}.png", mask)
    if images:
        for id, mask in {
            **(augmented or {}),
            **{id: mask for masks in lists.values() for id, mask in masks.items()},
        }.items():
            save_image(voc / "JPEGImages" / f"{id}.jpg", mask)
    return voc


def sbd_tree(root: Path, train: Masks, val: Masks) -> Path:
    """benchmark_RELEASE/dataset of SBD; returns the folder `dataset`."""
    from scipy.io import savemat

    dataset = root / "benchmark_RELEASE" / "dataset"
    (dataset / "cls").mkdir(parents=True)
    for name, masks in (("train", train), ("val", val)):
        save_list(dataset / f"{name}.txt", masks)
        for id, mask in masks.items():
            present = np.setdiff1d(mask, [0]).astype(np.uint8)[:, None]
            borders = np.empty((20, 1), object)
            borders[:, 0] = [mask == category for category in range(1, 21)]
            content = {"Boundaries": borders, "Segmentation": mask, "CategoriesPresent": present}
            savemat(dataset / "cls" / f"{id}.mat", {"GTcls": content}, do_compression=True)
    return dataset


def ade_tree(root: Path, splits: Mapping[str, Masks], images: bool = True) -> Path:
    """ADEChallengeData2016 with gray masks; returns that folder."""
    ade = root / "ADEChallengeData2016"
    for split, masks in splits.items():
        for id, mask in masks.items():
            save_gray(ade / "annotations" / split / f"{id}.png", mask)
            if images:
                save_image(ade / "images" / split / f"{id}.jpg", mask)
    return ade


def cityscapes_tree(
    root: Path,
    splits: Mapping[str, Masks],
    kind: str = "labelIds",
    images: bool = True,
    companions: Iterable[str] = ("color.png", "instanceIds.png", "polygons.json"),
) -> Path:
    """Cityscapes with gray masks of one kind, by ids ``city/x``, and the files that lie beside them; returns `root`."""
    for split, masks in splits.items():
        for id, mask in masks.items():
            save_gray(root / "gtFine" / split / f"{id}_gtFine_{kind}.png", mask)
            for companion in companions:
                (root / "gtFine" / split / f"{id}_gtFine_{companion}").write_bytes(b"")
            if images:
                save_image(root / "leftImg8bit" / split / f"{id}_leftImg8bit.png", mask)
    return root
