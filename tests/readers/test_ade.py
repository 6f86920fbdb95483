import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from trees import ade_tree, save_gray, save_image

from faircl.errors import UserError
from faircl.readers.ade import AdeData
from faircl.registry import READERS

FIRST = np.array([[0, 1, 150], [150, 0, 77]], np.uint8)
SECOND = np.array([[5, 5], [5, 0]], np.uint8)


@pytest.fixture
def ade(tmp_path: Path) -> Path:
    splits = {"training": {"ADE_train_2": SECOND, "ADE_train_1": FIRST}, "validation": {"ADE_val_1": SECOND}}
    return ade_tree(tmp_path, splits)


def test_reading(ade: Path) -> None:
    data = AdeData(ade)
    assert data.splits() == ("training", "validation")
    assert data.ids("training") == ("ADE_train_1", "ADE_train_2")
    sample = data.read("training", "ADE_train_1")
    np.testing.assert_array_equal(sample.mask, FIRST)
    assert sample.mask.dtype == np.uint8
    assert sample.image.shape == (2, 3, 3)
    np.testing.assert_array_equal(data.read_mask("validation", "ADE_val_1"), SECOND)


def test_zero_is_background_that_nobody_named(ade: Path) -> None:
    classes = AdeData(ade).classes
    assert (classes.background, classes.background_is_named) == (True, False)
    assert classes.foreground == tuple(range(1, 151))
    assert (classes.names[1], classes.names[150]) == ("wall", "flag")


def test_both_root_depths(ade: Path) -> None:
    for root in (ade, ade.parent, str(ade.parent)):
        assert AdeData(root).root == ade


def test_counts_are_those_of_the_decoded_mask(ade: Path) -> None:
    data = AdeData(ade)
    for id in data.ids("training"):
        mask = data.read_mask("training", id)
        counted = data.count_mask("training", id, data.mask_path("training", id).read_bytes())
        np.testing.assert_array_equal(counted.pixels, np.bincount(mask.ravel(), minlength=151))
        assert (counted.ignored, counted.size) == (0, mask.shape)


@pytest.mark.parametrize("value", [255, 151, 254])
def test_shifted_annotations_are_refused(ade: Path, value: int) -> None:
    save_gray(ade / "annotations" / "training" / "ADE_train_1.png", np.array([[value, 0, value]], np.uint8))
    data = AdeData(ade)
    message = (
        rf"ADE_train_1\.png holds value {value} in 2 pixels, but ADE20K has 151 classes, ids 0 to 150; these are not "
        r"the original annotations.*'reduce_zero_label' does; unpack annotations/ again"
    )
    with pytest.raises(UserError, match=message):
        data.read_mask("training", "ADE_train_1")
    with pytest.raises(UserError, match=message):
        data.count_mask("training", "ADE_train_1", data.mask_path("training", "ADE_train_1").read_bytes())


def test_deep_files_have_no_void_either(ade: Path) -> None:
    path = ade / "annotations" / "training" / "ADE_train_1.png"
    Image.fromarray(np.array([[0, 150]], np.uint16)).save(path)
    assert AdeData(ade).read_mask("training", "ADE_train_1").tolist() == [[0, 150]]
    for value in (255, 65535):
        Image.fromarray(np.array([[0, value]], np.uint16)).save(path)
        with pytest.raises(UserError, match=rf"holds value {value} in 1 pixels, but ADE20K has 151 classes"):
            AdeData(ade).read_mask("training", "ADE_train_1")


def test_colour_picture_is_refused(ade: Path) -> None:
    save_image(ade / "annotations" / "training" / "ADE_train_1.png", FIRST)
    with pytest.raises(UserError, match=r"ADE_train_1\.png is an RGB picture"):
        AdeData(ade).read_mask("training", "ADE_train_1")


def test_without_images(ade: Path) -> None:
    os.rename(ade / "images", ade / "elsewhere")
    data = AdeData(ade)
    np.testing.assert_array_equal(data.read_mask("training", "ADE_train_1"), FIRST)
    with pytest.raises(UserError, match=r"2 masks with no image: annotations/training/ADE_train_1\.png, .*; add the"):
        data.check_images("training")
    with pytest.raises(UserError, match=r"ADE_train_2\.png has no image; add it or remove the mask"):
        data.read("training", "ADE_train_2")


def test_images_without_masks_are_not_dropped(ade: Path) -> None:
    for n in range(3, 7):
        save_image(ade / "images" / "training" / f"ADE_train_{n}.jpg", FIRST)
    with pytest.raises(
        UserError, match=r"has 4 images with no mask: images/training/ADE_train_3\.jpg, .*, \.\.\.; unpack or add"
    ):
        AdeData(ade).ids("training")
    assert AdeData(ade).ids("validation") == ("ADE_val_1",)


def test_upper_case_links_and_names(ade: Path, tmp_path: Path) -> None:
    masks, images = ade / "annotations" / "training", ade / "images" / "training"
    os.rename(masks / "ADE_train_1.png", masks / "schöner Wald.PNG")
    os.rename(images / "ADE_train_1.jpg", images / "schöner Wald.JPG")
    for folder in (masks, images):
        os.rename(folder, tmp_path / f"far {folder.parent.name}")
        folder.symlink_to(tmp_path / f"far {folder.parent.name}", target_is_directory=True)
    data = AdeData(ade)
    assert data.ids("training") == ("ADE_train_2", "schöner Wald")
    np.testing.assert_array_equal(data.read("training", "schöner Wald").mask, FIRST)


def test_skipped(ade: Path) -> None:
    for name in (".DS_Store", "readme.txt", "ADE_train_1.jpg"):
        (ade / "annotations" / "training" / name).write_bytes(b"x")
    data = AdeData(ade)
    assert data.ids("training") == ("ADE_train_1", "ADE_train_2")
    assert set(data.skipped("training")) == {
        f"annotations/training/{name}" for name in (".DS_Store", "readme.txt", "ADE_train_1.jpg")
    }


def test_pickle(ade: Path) -> None:
    data = AdeData(ade)
    data.ids("training")
    copy = pickle.loads(pickle.dumps(data))
    (ade / "annotations" / "training" / "ADE_train_2.png").unlink()
    assert copy.ids("training") == ("ADE_train_1", "ADE_train_2")
    np.testing.assert_array_equal(copy.read_mask("training", "ADE_train_1"), FIRST)


def test_layout_errors(ade: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no annotations; expected ADEChallengeData2016 with images/\{split\}/"):
        AdeData(ade / "images")
    with pytest.raises(UserError, match=r"has no split 'train'.* It has: training, validation\."):
        AdeData(ade).ids("train")
    (ade / "annotations" / "empty").mkdir()
    with pytest.raises(UserError, match=r"Split 'empty' of .* is empty"):
        AdeData(ade).ids("empty")


def test_config(ade: Path) -> None:
    config = READERS.parse_config({"name": "ade", "root": str(ade)})
    assert (config.train, config.test) == ("training", "validation")
    assert config.open().ids(config.test) == ("ADE_val_1",)
    assert "100-50" in READERS.get("ade").tasks
