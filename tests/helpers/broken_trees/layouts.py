"""What can go wrong in one layout only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from trees import save_gray

from .case import Reads, Refused, case
from .good import (
    ADE,
    CAMVID,
    CAMVID_COLOURS,
    CATEGORIES,
    CVAT,
    FOLDER,
    PANOPTIC,
    SEGNET,
    TO_TRAIN_ID,
    Tree,
    each,
    panoptic_json,
    write_json,
)
from .pictures import painted, photo, save_rgb

# ---- folder


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
