import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from trees import cityscapes_tree, picture, save_gray

from faircl.errors import UserError
from faircl.labels import Mask
from faircl.readers.cityscapes import CityscapesData
from faircl.registry import READERS

IDS = np.array([[0, 7, 8, 9], [33, 26, 255, 29]], np.uint8)
TRAIN_IDS = np.array([[255, 0, 1, 255], [18, 13, 255, 255]], np.uint8)
WITH_BACKGROUND = np.array([[0, 1, 2, 0], [19, 14, 0, 0]], np.uint8)
AACHEN, BREMEN, MUNSTER = "aachen/aachen_000000_000019", "bremen/bremen_000001_000019", "munster/munster_000002_000019"


@pytest.fixture
def city(tmp_path: Path) -> Path:
    return cityscapes_tree(tmp_path, {"train": {BREMEN: IDS, AACHEN: IDS}, "val": {MUNSTER: IDS}})


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The same with labelTrainIds alone."""
    splits = {"train": {BREMEN: TRAIN_IDS, AACHEN: TRAIN_IDS}, "val": {MUNSTER: TRAIN_IDS}}
    return cityscapes_tree(tmp_path, splits, kind="labelTrainIds")


def mask_file(root: Path, id: str, kind: str = "labelIds", split: str = "train") -> Path:
    return root / "gtFine" / split / f"{id}_gtFine_{kind}.png"


def counted(data: CityscapesData, split: str, id: str) -> list[int]:
    """Pixels by class, then ignored ones."""
    pixels, ignored, size = data.count_mask(split, id, data.mask_path(split, id).read_bytes())
    assert size == IDS.shape
    return [*pixels.tolist(), ignored]


def count(mask: Mask, classes: int) -> list[int]:
    return [*(int((mask == id).sum()) for id in range(classes)), int((mask == 255).sum())]


# ---- reading


def test_label_ids(city: Path) -> None:
    data = CityscapesData(city)
    assert data.splits() == ("train", "val")
    assert data.ids("train") == (AACHEN, BREMEN)
    assert data.ids("train+val") == (AACHEN, BREMEN, MUNSTER)
    sample = data.read("train", AACHEN)
    np.testing.assert_array_equal(sample.mask, TRAIN_IDS)
    np.testing.assert_array_equal(sample.image, picture(IDS))
    assert not data.classes.background
    assert data.classes.foreground == tuple(range(19))
    assert counted(data, "train", AACHEN) == count(TRAIN_IDS, 19)


def test_train_ids(trained: Path) -> None:
    for labels in ("auto", "train_ids"):
        data = CityscapesData(trained, labels)
        np.testing.assert_array_equal(data.read_mask("train", BREMEN), TRAIN_IDS)
        assert counted(data, "val", MUNSTER) == count(TRAIN_IDS, 19)


def test_void_as_background(city: Path) -> None:
    save_gray(mask_file(city, AACHEN, "labelTrainIds"), TRAIN_IDS)
    save_gray(mask_file(city, BREMEN, "labelTrainIds"), TRAIN_IDS)
    for labels in ("ids", "train_ids"):
        data = CityscapesData(city, labels, background="void")
        np.testing.assert_array_equal(data.read_mask("train", AACHEN), WITH_BACKGROUND)
        assert counted(data, "train", AACHEN) == count(WITH_BACKGROUND, 20)
        assert counted(data, "train", AACHEN)[-1] == 0
        assert data.classes.names[:2] == ("background", "road")
        assert len(data.classes.names) == 20
        assert (data.classes.background, data.classes.background_is_named) == (True, False)
        assert data.palette is not None
        assert data.palette.shape == (20, 3)
        assert data.palette[1].tolist() == [128, 64, 128]


def test_every_label_id(city: Path) -> None:
    save_gray(mask_file(city, AACHEN), np.arange(34, dtype=np.uint8)[None])
    expected = [255] * 7 + [0, 1, 255, 255, 2, 3, 4] + [255] * 3 + [5, 255, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    expected += [255, 255, 16, 17, 18]
    assert CityscapesData(city).read_mask("train", AACHEN).tolist() == [expected]


def test_labels_setting_chooses(city: Path) -> None:
    other = np.full_like(TRAIN_IDS, 10)
    for id in (AACHEN, BREMEN):
        save_gray(mask_file(city, id, "labelTrainIds"), other)
    assert CityscapesData(city).mask_path("train", AACHEN) == mask_file(city, AACHEN)
    data = CityscapesData(city, "train_ids")
    np.testing.assert_array_equal(data.read_mask("train", AACHEN), other)
    assert data.skipped("train") == ()


def test_kinds_may_differ_between_splits(city: Path) -> None:
    mask_file(city, MUNSTER, split="val").unlink()
    save_gray(mask_file(city, MUNSTER, "labelTrainIds", "val"), TRAIN_IDS)
    data = CityscapesData(city)
    for id in (AACHEN, MUNSTER):
        np.testing.assert_array_equal(data.read_mask("train+val", id), TRAIN_IDS)
        assert counted(data, "train+val", id) == count(TRAIN_IDS, 19)
    assert data.label_key("train+val", AACHEN) != data.label_key("train+val", MUNSTER)


def test_auto_takes_the_kind_that_is_whole(city: Path) -> None:
    mask_file(city, BREMEN).unlink()
    for id in (AACHEN, BREMEN):
        save_gray(mask_file(city, id, "labelTrainIds"), TRAIN_IDS)
    assert CityscapesData(city).mask_path("train", AACHEN) == mask_file(city, AACHEN, "labelTrainIds")


def test_cities_are_domains_in_the_published_order(city: Path) -> None:
    data = CityscapesData(city)
    assert [data.domain("train+val", id) for id in data.ids("train+val")] == ["aachen", "bremen", "munster"]
    assert data.domain_order[:2] == ("aachen", "bremen")
    assert data.domain_order[-1] == "munster"
    assert data.domain_tasks == ("11-5", "11-1", "1-1")


def test_order_is_by_city_and_then_name(tmp_path: Path) -> None:
    ids = ("bad homburg/y", "bad/z", "bad/a_2", "bad/a")
    cityscapes_tree(tmp_path, {"train": dict.fromkeys(ids, IDS)})
    assert CityscapesData(tmp_path).ids("train") == ("bad/a", "bad/a_2", "bad/z", "bad homburg/y")


def test_without_images(city: Path) -> None:
    os.rename(city / "leftImg8bit", city / "elsewhere")
    data = CityscapesData(city)
    np.testing.assert_array_equal(data.read_mask("train", AACHEN), TRAIN_IDS)
    with pytest.raises(UserError, match=r"2 masks with no image: gtFine/train/aachen/.*_labelIds\.png, .*; add the"):
        data.check_images("train")
    with pytest.raises(UserError, match=r"bremen_000001_000019_gtFine_labelIds\.png has no image"):
        data.read("train", BREMEN)


def test_upper_case_links_and_names(city: Path, tmp_path: Path) -> None:
    name = "köln/köln 1"
    save_gray(mask_file(city, name), IDS)
    os.rename(mask_file(city, name), mask_file(city, name).with_suffix(".PNG"))
    (city / "leftImg8bit" / "train" / "köln").mkdir()
    Image.fromarray(picture(IDS)).save(city / "leftImg8bit" / "train" / f"{name}_leftImg8bit.PNG")
    for kind in ("gtFine", "leftImg8bit"):
        folder = city / kind / "train" / "bremen"
        os.rename(folder, tmp_path / f"far {kind}")
        folder.symlink_to(tmp_path / f"far {kind}", target_is_directory=True)
    data = CityscapesData(city)
    assert data.ids("train") == (AACHEN, BREMEN, name)
    for id in (BREMEN, name):
        np.testing.assert_array_equal(data.read("train", id).mask, TRAIN_IDS)


def test_companions_are_not_skipped_but_others_are(city: Path) -> None:
    folder = city / "gtFine" / "train"
    others = (
        "flat_gtFine_labelIds.png",
        "aachen/.DS_Store",
        "aachen/._x_gtFine_polygons.json",
        "aachen/deeper/x_gtFine_labelIds.png",
        "aachen/x.png",
        "aachen/x_gtFine_labelIds.jpg",
        "aachen/x_gtFine_panoptic.png",
    )
    (folder / "aachen" / "deeper").mkdir()
    for name in others:
        (folder / name).write_bytes(b"x")
    (folder / "aachen" / "aachen_000000_000019_gtFine_instanceTrainIds.png").write_bytes(b"x")
    data = CityscapesData(city)
    assert data.ids("train") == (AACHEN, BREMEN)
    assert set(data.skipped("train")) == {f"gtFine/train/{name}" for name in others}
    assert data.skipped("val") == ()


def test_panoptic_folders_are_no_splits(city: Path) -> None:
    (city / "gtFine" / "cityscapes_panoptic_train").mkdir()
    assert CityscapesData(city).splits() == ("train", "val")


def test_pickle(city: Path) -> None:
    data = CityscapesData(city, background="void")
    data.ids("train")
    copy = pickle.loads(pickle.dumps(data))
    mask_file(city, BREMEN).unlink()
    assert copy.ids("train") == (AACHEN, BREMEN)
    np.testing.assert_array_equal(copy.read_mask("train", AACHEN), WITH_BACKGROUND)


def test_config(city: Path) -> None:
    config = READERS.parse_config({"name": "cityscapes", "root": str(city), "background": "void", "labels": "ids"})
    assert (config.train, config.test) == ("train", "val")
    np.testing.assert_array_equal(config.open().read_mask("val", MUNSTER), WITH_BACKGROUND)
    assert {"11-1", "14-1", "offline"} < set(READERS.get("cityscapes").tasks)


# ---- errors


def test_masks_missing_here_and_there(city: Path) -> None:
    save_gray(mask_file(city, AACHEN, "labelTrainIds"), TRAIN_IDS)
    mask_file(city, AACHEN).unlink()
    with pytest.raises(
        UserError,
        match=rf"train has 1 image with no labelIds mask: {AACHEN} and 1 image with no labelTrainIds mask: {BREMEN}; "
        "all images of a split need the same kind",
    ):
        CityscapesData(city).ids("train")
    with pytest.raises(UserError, match=rf"train has 1 image with no labelIds mask: {AACHEN}; all images"):
        CityscapesData(city, "ids").ids("train")


def test_no_mask_of_the_wanted_kind(city: Path) -> None:
    with pytest.raises(
        UserError,
        match=r"val has no mask; expected x_gtFine_labelTrainIds\.png in the folder of each city.*data\.labels",
    ):
        CityscapesData(city, "train_ids").ids("val")
    (city / "gtFine" / "test").mkdir()
    with pytest.raises(UserError, match=r"test has no mask; expected x_gtFine_labelIds\.png or x_gtFine_labelTrainIds"):
        CityscapesData(city).ids("test")


@pytest.mark.parametrize("background", ["none", "void"])
@pytest.mark.parametrize(
    ("kind", "value", "hint"),
    [
        ("labelIds", 34, "labelIds go from 0 to 33, with 255 for ignored pixels"),
        ("labelIds", 254, "labelIds go from 0 to 33"),
        ("labelTrainIds", 19, "train ids go from 0 to 18, with 255 for ignored pixels: if the file holds labelIds"),
        ("labelTrainIds", 254, "train ids go from 0 to 18"),
    ],
)
def test_unknown_values(tmp_path: Path, kind: str, value: int, hint: str, background: str) -> None:
    cityscapes_tree(tmp_path, {"train": {AACHEN: np.array([[7, value]], np.uint8)}}, kind)
    data = CityscapesData(tmp_path, background=background)
    message = rf"{kind}\.png holds value {value} in 1 pixels, but Cityscapes has (19|20) classes; {hint}"
    with pytest.raises(UserError, match=message):
        data.read_mask("train", AACHEN)
    with pytest.raises(UserError, match=message):
        data.count_mask("train", AACHEN, data.mask_path("train", AACHEN).read_bytes())


def test_instances_are_refused(city: Path) -> None:
    Image.fromarray(np.array([[7, 26001]], np.uint16)).save(mask_file(city, AACHEN))
    with pytest.raises(UserError, match=r"holds value 26001 in 1 pixels.*unpack gtFine again"):
        CityscapesData(city).read_mask("train", AACHEN)


@pytest.mark.parametrize("kind", ["labelIds", "labelTrainIds"])
def test_preview_is_refused(tmp_path: Path, kind: str) -> None:
    cityscapes_tree(tmp_path, {"train": {AACHEN: picture(IDS)[..., 0]}}, kind)
    Image.fromarray(picture(IDS)).save(mask_file(tmp_path, AACHEN, kind))
    with pytest.raises(UserError, match=r"is a colour picture; .* it is likely the preview that lies beside the masks"):
        CityscapesData(tmp_path).read_mask("train", AACHEN)


def test_layout_errors(city: Path) -> None:
    with pytest.raises(UserError, match=r"has no gtFine; expected gtFine/\{split\}/\{city\}/ and leftImg8bit"):
        CityscapesData(city / "leftImg8bit")
    with pytest.raises(UserError, match=r"has no split 'trian'\. Did you mean 'train'\? It has: train, val\."):
        CityscapesData(city).ids("trian")
    with pytest.raises(UserError, match="Unknown labels setting 'id'"):
        CityscapesData(city, "id")
    with pytest.raises(UserError, match="Unknown background setting 'first'"):
        CityscapesData(city, background="first")
