"""Names, links and folders."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from trees import save_gray, save_list, save_palette

from .case import Reads, Refused, case
from .good import EVERY, FOLDER, STORED_CITIES, TO_TRAIN_ID, Tree, panoptic_json, write_json
from .pictures import photo

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
