"""Splits that are empty, missing or leak, and images and masks without each other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from .case import Reads, Refused, case
from .good import CVAT, EVERY, FOLDER, Tree
from .pictures import photo


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
