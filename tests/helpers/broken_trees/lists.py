"""Lists of ids, in VOC and CVAT."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .case import Reads, Refused, case
from .good import VOC, Tree


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
