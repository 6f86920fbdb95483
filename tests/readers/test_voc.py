import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from trees import picture, save_gray, save_list, save_palette, voc_tree

from faircl.data.masks import IGNORE_COLOUR, voc_palette
from faircl.errors import UserError
from faircl.labels import BACKGROUND
from faircl.readers.voc import VocData, read_list
from faircl.registry import READERS

FIRST = np.array([[0, 1, 20], [255, 15, 0]], np.uint8)
SECOND = np.array([[0, 0, 7], [7, 7, 255]], np.uint8)
THIRD = np.array([[3, 3], [0, 255]], np.uint8)
FROM_SBD = np.array([[0, 1, 20], [1, 15, 0]], np.uint8)


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """VOC2012 with train (b, a, in this order), val (c), and SegmentationClassAug with one more mask."""
    lists = {"train": {"2007_b": SECOND, "2007_a": FIRST}, "val": {"2008_c": THIRD}}
    augmented = {"2007_a": FROM_SBD, "2007_b": SECOND, "2008_c": THIRD, "2009_d": SECOND}
    return voc_tree(tmp_path, lists, augmented)


def write_list(voc: Path, split: str, text: str, folder: str = "ImageSets/Segmentation") -> None:
    (voc / folder).mkdir(parents=True, exist_ok=True)
    (voc / folder / f"{split}.txt").write_bytes(text.encode())


def refused(root: Path, split: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        VocData(root).ids(split)


# ---- reading


def test_reading(voc: Path) -> None:
    data = VocData(voc)
    assert data.ids("train") == ("2007_b", "2007_a")  # the list's order
    assert data.ids("train+val") == ("2007_b", "2007_a", "2008_c")
    np.testing.assert_array_equal(data.read_mask("train", "2007_a"), FIRST)
    sample = data.read("val", "2008_c")
    np.testing.assert_array_equal(sample.mask, THIRD)
    assert sample.image.shape == (2, 2, 3)
    assert np.abs(sample.image.astype(int) - picture(THIRD)).max() < 30  # a JPEG
    assert data.classes.background
    assert data.classes.foreground == tuple(range(1, 21))
    assert data.classes.names[BACKGROUND] == "background"
    assert data.domain("val", "2008_c") is None


def test_root_at_any_depth(voc: Path) -> None:
    for root in (voc, voc.parent, voc.parent.parent, str(voc)):
        assert VocData(root).root == voc


def test_train_aug_takes_the_other_masks(voc: Path) -> None:
    data = VocData(voc)
    assert data.ids("train_aug") == ("2007_a", "2007_b", "2009_d")  # all but val, sorted
    np.testing.assert_array_equal(data.read_mask("train_aug", "2007_a"), FROM_SBD)
    assert data.splits() == ("train", "train_aug", "val")
    write_list(voc, "train_aug", "2009_d\n2007_a\n")
    data = VocData(voc)
    assert data.ids("train_aug") == ("2009_d", "2007_a")  # a list counts where there is one
    np.testing.assert_array_equal(data.read_mask("train_aug", "2007_a"), FROM_SBD)


def test_other_splits_fall_back_to_augmented_masks(voc: Path) -> None:
    (voc / "SegmentationClass" / "2007_a.png").unlink()
    data = VocData(voc)
    np.testing.assert_array_equal(data.read_mask("train", "2007_a"), FROM_SBD)
    assert data.mask_path("train", "2007_b") == voc / "SegmentationClass" / "2007_b.png"
    (voc / "SegmentationClassAug" / "notes.txt").write_text("x")
    assert VocData(voc).skipped("train") == ("SegmentationClassAug/notes.txt",)


@pytest.mark.parametrize(
    "text",
    [
        "2007_a\n2009_d\n",
        "\ufeff2007_a  \r\n\r\n2009_d\r\n\r\n",
        "/JPEGImages/2007_a.jpg /SegmentationClassAug/2007_a.png\n/JPEGImages/2009_d.jpg /Segmentation/2009_d.png",
        "JPEGImages/2007_a.jpg\tSegmentation/2007_a.png \r\nJPEGImages/2009_d.JPG  Segmentation/2009_d.PNG",
        "\n2007_a.jpg\n2009_d.png\n",
    ],
)
@pytest.mark.parametrize("folder", ["ImageSets/Segmentation", "splits", "list"])
def test_shapes_of_lists(voc: Path, text: str, folder: str) -> None:
    write_list(voc, "train_aug", text, folder)
    assert VocData(voc).ids("train_aug") == ("2007_a", "2009_d")


def test_devkit_lists_come_first(voc: Path) -> None:
    write_list(voc, "train", "2009_d\n", "splits")
    write_list(voc, "mine", "2008_c\n", "list")
    write_list(voc, ".hidden", "2008_c\n", "list")
    data = VocData(voc)
    assert data.splits() == ("mine", "train", "train_aug", "val")
    assert data.ids("train") == ("2007_b", "2007_a")
    assert data.ids("mine") == ("2008_c",)


def test_names_with_dots_spaces_and_letters(voc: Path) -> None:
    for id in ("my photo 1.5", "Zürich"):
        save_palette(voc / "SegmentationClass" / f"{id}.png", FIRST)
    paired = "/JPEGImages/my photo 1.5.jpg /SegmentationClass/my photo 1.5.png\nZürich\n"
    for text in ("my photo 1.5\nZürich\n", paired):
        write_list(voc, "own", text)
        data = VocData(voc)
        assert data.ids("own") == ("my photo 1.5", "Zürich")
        np.testing.assert_array_equal(data.read_mask("own", "my photo 1.5"), FIRST)


def test_upper_case_and_links(voc: Path, tmp_path: Path) -> None:
    os.rename(voc / "SegmentationClass" / "2007_a.png", voc / "SegmentationClass" / "2007_a.PNG")
    os.rename(voc / "JPEGImages" / "2007_a.jpg", voc / "JPEGImages" / "2007_a.JPG")
    for name in ("JPEGImages", "SegmentationClass"):
        os.rename(voc / name, tmp_path / name)
        (voc / name).symlink_to(tmp_path / name, target_is_directory=True)
    os.rename(tmp_path / "SegmentationClass" / "2007_b.png", tmp_path / "far.png")
    (voc / "SegmentationClass" / "2007_b.png").symlink_to(tmp_path / "far.png")
    data = VocData(voc)
    np.testing.assert_array_equal(data.read("train", "2007_a").mask, FIRST)
    np.testing.assert_array_equal(data.read("train", "2007_b").mask, SECOND)


def test_codings(voc: Path) -> None:
    """Gray index, VOC's palette, RGB and a palette in another order all hold the same ids, and count the same."""
    folder = voc / "SegmentationClass"
    colours = voc_palette(256).copy()
    colours[255] = IGNORE_COLOUR
    save_gray(folder / "gray.png", FIRST)
    save_palette(folder / "palette.png", FIRST)
    Image.fromarray(colours[FIRST]).save(folder / "rgb.png")
    values, places = np.unique(FIRST, return_inverse=True)
    anew = Image.fromarray((len(values) - 1 - places.reshape(FIRST.shape)).astype(np.uint8))
    anew.putpalette(colours[values[::-1]].tobytes())
    anew.save(folder / "anew.png")
    assert (np.asarray(Image.open(folder / "anew.png")) != FIRST).any()
    ids = ("gray", "palette", "rgb", "anew")
    save_list(voc / "splits" / "codings.txt", ids)
    data = VocData(voc)
    for id in ids:
        np.testing.assert_array_equal(data.read_mask("codings", id), FIRST, err_msg=id)
        counted = data.count_mask("codings", id, (folder / f"{id}.png").read_bytes())
        np.testing.assert_array_equal(counted.pixels, np.bincount(FIRST.ravel(), minlength=256)[:21], err_msg=id)
        assert (counted.ignored, counted.size) == (1, (2, 3)), id


def test_without_images(voc: Path) -> None:
    for image in (voc / "JPEGImages").iterdir():
        image.unlink()
    for _ in range(2):  # an empty folder, then none
        data = VocData(voc)
        np.testing.assert_array_equal(data.read_mask("train_aug", "2009_d"), SECOND)
        with pytest.raises(UserError, match=r"has 3 masks with no image: SegmentationClassAug/2007_a\.png, .*; add"):
            data.check_images("train_aug")
        with pytest.raises(UserError, match=r"SegmentationClassAug/2009_d\.png has no image; add it or remove"):
            data.read("train_aug", "2009_d")
        if (voc / "JPEGImages").exists():
            (voc / "JPEGImages").rmdir()


def test_pickle(voc: Path) -> None:
    data = VocData(voc)
    data.ids("train")
    copy = pickle.loads(pickle.dumps(data))
    (voc / "ImageSets" / "Segmentation" / "train.txt").unlink()  # a fresh listing would now fail
    np.testing.assert_array_equal(copy.read_mask("train", "2007_a"), FIRST)


def test_skipped_are_files_that_cannot_be_masks(voc: Path) -> None:
    save_palette(voc / "SegmentationClass" / "2007_nobody.png", FIRST)
    (voc / "SegmentationClass" / "notes.txt").write_text("x")
    (voc / "SegmentationClassAug" / "._2007_a.png").write_bytes(b"x")
    data = VocData(voc)
    assert data.skipped("train") == ("SegmentationClass/notes.txt",)
    assert data.skipped("train_aug") == ("SegmentationClassAug/._2007_a.png",)
    assert "2007_nobody" not in data.ids("train")


def test_config(voc: Path) -> None:
    config = READERS.parse_config({"name": "voc", "root": str(voc.parent)})
    assert (config.train, config.test) == ("train_aug", "val")
    assert config.open().ids(config.test) == ("2008_c",)
    with pytest.raises(UserError, match=r"The data set 'voc' has no root; set data\.root"):
        READERS.parse_config("voc").open()
    assert "15-1" in READERS.get("voc").tasks


# ---- errors


def test_not_voc(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not PASCAL VOC 2012; expected VOCdevkit/VOC2012 with JPEGImages/"):
        VocData(tmp_path)
    with pytest.raises(UserError, match=r"nowhere does not exist .*; expected VOCdevkit/VOC2012"):
        VocData(tmp_path / "nowhere")


def test_missing_lists(voc: Path) -> None:
    looked = r"\(looked in ImageSets/Segmentation, splits and list\)"
    refused(
        voc, "trian", rf"has no list trian\.txt {looked}\. Did you mean 'train'\? .* it has: train, train_aug, val\."
    )
    (voc / "ImageSets" / "Segmentation" / "val.txt").unlink()
    refused(voc, "train_aug", rf"no list train_aug\.txt {looked}, and no val\.txt to tell which masks .*; add one")
    for mask in (voc / "SegmentationClassAug").iterdir():
        mask.unlink()
    (voc / "SegmentationClassAug").rmdir()
    refused(
        voc,
        "train_aug",
        rf"no list train_aug\.txt {looked} and no folder SegmentationClassAug; make both with "
        r"'faircl data prepare voc', or choose another split \(it has: train\)",
    )


def test_listed_without_mask(voc: Path) -> None:
    save_list(voc / "splits" / "own.txt", ["2007_a", "x1", "x2", "x3", "x4"])
    refused(
        voc, "own", r"own\.txt of .* has 4 ids with no mask: x1, x2, x3, \.\.\.; expected .*SegmentationClass.x1\.png"
    )
    write_list(voc, "train_aug", "2007_a\n2007_x\n")
    refused(
        voc, "train_aug", r"has 1 id with no mask: 2007_x; .*Aug.2007_x\.png: make them with 'faircl data prepare voc'"
    )


def test_lists_that_cannot_be_read(voc: Path) -> None:
    write_list(voc, "train", "2007_a\n2007_b\n2007_a\n")
    refused(voc, "train", r"train\.txt names '2007_a' twice; remove one of the two lines")
    write_list(voc, "train", "\r\n \n")
    refused(voc, "train", r"train\.txt is empty; write one image id per line")
    write_list(voc, "train", "/JPEGImages/2007_a.JPG /SegmentationClass/2007_b.PNG\n")
    refused(voc, "train", r"train\.txt pairs image '2007_a' with mask '2007_b'; both must have the same name")
    (voc / "ImageSets" / "Segmentation" / "train.txt").write_bytes(b"caf\xe9\n")
    refused(voc, "train", r"Cannot read list .*train\.txt: it is not UTF-8 text")
    with pytest.raises(UserError, match=r"Cannot read list .*none\.txt: No such file"):
        read_list(voc / "none.txt")


def test_train_aug_of_nothing_but_val(voc: Path) -> None:
    for id in ("2007_a", "2007_b", "2009_d"):
        (voc / "SegmentationClassAug" / f"{id}.png").unlink()
    refused(voc, "train_aug", "Split 'train_aug' of .* is empty")


def test_unknown_values_and_colours(voc: Path) -> None:
    save_palette(voc / "SegmentationClass" / "2007_a.png", np.array([[21, 0]], np.uint8))
    Image.fromarray(np.full((2, 2, 3), 9, np.uint8)).save(voc / "SegmentationClass" / "2007_b.png")
    data = VocData(voc)
    with pytest.raises(UserError, match=r"2007_a\.png holds value 21 in 1 pixels, but PASCAL VOC has 21 classes"):
        data.read_mask("train", "2007_a")
    with pytest.raises(UserError, match=r"2007_b\.png has colour \(9, 9, 9\) in 4 pixels"):
        data.read_mask("train", "2007_b")
