import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from faircl.data.file_data import FileData
from faircl.data.label_index import index_labels
from faircl.data.mask_coding import count_ids
from faircl.errors import UserError
from faircl.readers.coco import CocoPanopticConfig, CocoPanopticData, CocoStuffConfig, CocoStuffData

PICTURE = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10
CATEGORIES = [{"id": 200, "name": "sky"}, {"id": 3, "name": "car"}, {"id": 17, "name": "cat"}]
SEGMENTS = np.array([[0, 7, 7], [300, 70000, 300]])  # segment ids; 70000 = 112 + 256 · 17 + 65536
INFO = [
    {"id": 70000, "category_id": 200, "iscrowd": 0},
    {"id": 7, "category_id": 17, "iscrowd": 1},
    {"id": 300, "category_id": 3, "iscrowd": 0},
]
IDS = [[255, 1, 1], [0, 2, 0]]


def save(path: Path, array: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return path


def coloured(segments: np.ndarray) -> np.ndarray:
    return np.stack([segments % 256, segments // 256 % 256, segments // 65536], -1).astype(np.uint8)


def write_json(root: Path, split: str, annotations: list[dict[str, Any]], **other: Any) -> None:
    images = [{"id": 5 * number, "file_name": f"im{number}.jpg"} for number in range(len(annotations))]
    for number, annotation in enumerate(annotations):
        annotation.setdefault("image_id", 5 * number)
    tree = {"categories": CATEGORIES, "images": images, "annotations": annotations} | other
    path = root / "annotations" / f"panoptic_{split}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree))


@pytest.fixture
def panoptic(tmp_path: Path) -> Path:
    for split, masks in (("val2017", "annotations/panoptic_val2017"), ("train2017", "panoptic_train2017")):
        save(tmp_path / split / "im0.JPG", PICTURE)
        save(tmp_path / split / "im1.png", PICTURE)
        for name in ("b", "a"):
            save(tmp_path / masks / f"{name}.png", coloured(SEGMENTS))
    pair = [{"file_name": "b.png", "segments_info": INFO}, {"file_name": "a.png", "segments_info": INFO[::-1]}]
    write_json(tmp_path, "val2017", pair)
    write_json(tmp_path, "train2017", [*pair])
    return tmp_path


def counts_are_those_of_masks(data: FileData, split: str) -> None:
    for id in data.ids(split):
        counted = data.count_mask(split, id, data.mask_path(split, id).read_bytes())
        expected = count_ids(data.read_mask(split, id), len(data.classes.names))
        np.testing.assert_array_equal(counted.pixels, expected.pixels)
        assert counted[1:] == expected[1:]


# ---- panoptic


def test_panoptic(panoptic: Path) -> None:
    data = CocoPanopticData(panoptic)
    assert data.classes.names == ("car", "cat", "sky")  # in order of their ids
    assert not data.classes.background
    assert data.splits() == ("train2017", "val2017")
    for split in data.splits():
        assert data.ids(split) == ("b", "a")  # the JSON's order
        sample = data.read(split, "b")
        assert sample.mask.tolist() == IDS
        assert sample.mask.dtype == np.uint8
        assert sample.image.shape == (2, 3, 3)
        assert data.image_path(split, "b").name == "im0.JPG"
        counts_are_those_of_masks(data, split)
    np.testing.assert_array_equal(data.read("val2017", "a").image, PICTURE)
    index = index_labels(data, "val2017", cache=False)
    assert index.pixels.tolist() == [[2, 2, 1]] * 2
    assert index.ignored is not None
    assert index.ignored.tolist() == [1, 1]
    assert data.skipped("val2017") == ()


def test_many_categories_give_uint16(panoptic: Path) -> None:
    many = [{"id": id, "name": f"c{id}"} for id in range(300)]
    info = [{"id": 7, "category_id": 299}, {"id": 300, "category_id": 255}, {"id": 70000, "category_id": 0}]
    for split in ("val2017", "train2017"):
        write_json(panoptic, split, [{"file_name": "a.png", "segments_info": info}], categories=many)
    data = CocoPanopticData(panoptic)
    mask = data.read_mask("val2017", "a")
    assert mask.dtype == np.uint16
    assert mask.tolist() == [[65535, 299, 299], [255, 0, 255]]
    counts_are_those_of_masks(data, "val2017")


def test_segments_are_part_of_the_key(panoptic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRCL_CACHE", str(tmp_path / "cache"))
    data = CocoPanopticData(panoptic)
    before = data.label_key("val2017", "a")
    assert before == data.label_key("val2017", "b")  # the order in the JSON says nothing
    assert before != data.coding.fingerprint
    assert index_labels(data, "val2017").pixels.tolist() == [[2, 2, 1]] * 2
    changed = [{**one, "category_id": 17} for one in INFO]
    write_json(panoptic, "val2017", [{"file_name": "a.png", "segments_info": changed}])
    data = CocoPanopticData(panoptic)
    assert data.label_key("val2017", "a") != before
    assert index_labels(data, "val2017").pixels.tolist() == [[0, 5, 0]]  # and not what was counted before


def test_joined_splits_and_pickle(panoptic: Path) -> None:
    write_json(panoptic, "train2017", [{"file_name": "c.png", "segments_info": INFO}])
    save(panoptic / "panoptic_train2017" / "c.png", coloured(SEGMENTS))
    data = CocoPanopticData(panoptic)
    assert data.ids("train2017+val2017") == ("c", "b", "a")
    copy = pickle.loads(pickle.dumps(data))
    (panoptic / "annotations" / "panoptic_val2017.json").unlink()  # a fresh listing would now fail
    assert copy.read("train2017+val2017", "a").mask.tolist() == IDS
    assert copy.label_key("train2017+val2017", "c") == copy.label_key("train2017+val2017", "a")


def test_panoptic_masks_alone_and_left_out_files(panoptic: Path) -> None:
    masks = panoptic / "annotations" / "panoptic_val2017"
    save(masks / "unlisted.png", coloured(SEGMENTS))
    for path in (masks / ".DS_Store", panoptic / "val2017" / "notes.txt"):
        path.write_bytes(b"x")
    (panoptic / "val2017" / "im1.png").unlink()
    folder = "annotations/panoptic_val2017"
    data = CocoPanopticData(panoptic)
    assert set(data.skipped("val2017")) == {f"{folder}/unlisted.png", f"{folder}/.DS_Store", "val2017/notes.txt"}
    assert data.read_mask("val2017", "a").tolist() == IDS
    with pytest.raises(UserError, match=r"panoptic_val2017.a\.png has no image"):
        data.read("val2017", "a")
    with pytest.raises(UserError, match=r"has 1 mask with no image: annotations/panoptic_val2017/a\.png"):
        data.check_images("val2017")


def test_images_in_a_folder_of_images(panoptic: Path) -> None:
    (panoptic / "images").mkdir()
    (panoptic / "val2017").rename(panoptic / "images" / "val2017")
    CocoPanopticData(panoptic).check_images("val2017")


def test_segment_that_is_not_listed(panoptic: Path) -> None:
    path = save(panoptic / "annotations" / "panoptic_val2017" / "a.png", coloured(np.array([[7, 9, 8], [9, 7, 9]])))
    data = CocoPanopticData(panoptic)
    message = r"a\.png has segment 9 in 3 pixels, but the JSON lists no such segment for it"
    with pytest.raises(UserError, match=message):
        data.read_mask("val2017", "a")
    with pytest.raises(UserError, match=message):
        data.count_mask("val2017", "a", path.read_bytes())


def test_unlabelled_image(panoptic: Path) -> None:
    save(panoptic / "annotations" / "panoptic_val2017" / "a.png", np.zeros((2, 3, 3), np.uint8))
    write_json(panoptic, "val2017", [{"file_name": "a.png", "segments_info": []}])
    data = CocoPanopticData(panoptic)
    assert (data.read_mask("val2017", "a") == 255).all()
    counts_are_those_of_masks(data, "val2017")


@pytest.mark.parametrize(
    ("annotation", "other", "message"),
    [
        ({"segments_info": [{"id": 1, "category_id": 4}]}, {}, "gives a the category 4, which it does not list"),
        ({"segments_info": [{"id": 0, "category_id": 3}]}, {}, r"has segments \[0\], … for a; ids must differ and lie"),
        ({"segments_info": [INFO[0], INFO[0]]}, {}, "ids must differ"),
        ({"segments_info": [{"id": "x", "category_id": 3}]}, {}, "not a panoptic annotation file; expected images"),
        ({}, {}, "is not a panoptic annotation file; expected images with id and file_name, and annotations"),
        ({"segments_info": INFO, "image_id": 99}, {}, "is not a panoptic annotation file"),
        ({"segments_info": INFO}, {"categories": CATEGORIES[:2]}, "has other categories than the split beside it"),
        ({"segments_info": INFO}, {"images": None}, "is not a panoptic annotation file"),
    ],
)
def test_panoptic_json_errors(panoptic: Path, annotation: dict[str, Any], other: dict[str, Any], message: str) -> None:
    write_json(panoptic, "train2017", [{"file_name": "a.png", **annotation}], padding=" " * 2000, **other)
    data = CocoPanopticData(panoptic)  # it reads the smaller one, val2017
    with pytest.raises(UserError, match=rf"panoptic_train2017\.json.*{message}"):
        data.ids("train2017")


@pytest.mark.parametrize(
    "categories", [[], None, [{"id": 1}], [CATEGORIES[0]] * 2, [*CATEGORIES, {"id": 4, "name": "sky"}]]
)
def test_category_errors(panoptic: Path, categories: Any) -> None:
    for split in ("val2017", "train2017"):
        write_json(panoptic, split, [], categories=categories)
    with pytest.raises(UserError, match=r"json is not a panoptic annotation file; expected categories"):
        CocoPanopticData(panoptic)


def test_panoptic_layout_errors(panoptic: Path, tmp_path: Path) -> None:
    data = CocoPanopticData(panoptic)
    with pytest.raises(UserError, match=r"has no split 'val'\. Did you mean 'val2017'\? It has: train2017, val2017"):
        data.ids("val")
    (panoptic / "annotations" / "panoptic_val2017" / "a.png").unlink()
    with pytest.raises(UserError, match=r"has 1 image with no mask: .*; unpack or add the masks"):
        data.ids("val2017")
    write_json(panoptic, "val2017", [{"file_name": "b.png", "segments_info": INFO}] * 2)
    with pytest.raises(UserError, match="expected one annotation for each mask"):
        data.ids("val2017")
    (panoptic / "annotations" / "panoptic_val2017.json").write_text('{"categories": [')
    with pytest.raises(UserError, match=r"Cannot read .*panoptic_val2017\.json: it is not complete JSON"):
        CocoPanopticData(panoptic)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty has no annotations/panoptic_\{split\}\.json; expected"):
        CocoPanopticData(tmp_path / "empty")


# ---- stuff


@pytest.fixture(params=["stuffthingmaps", "annotations"])
def stuff(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    # Values 0, 89 are things 1 and 90; 91 and 181 are stuff 92 and 182, the first and the last.
    save(tmp_path / request.param / "val2017" / "a.png", np.array([[0, 255, 89], [91, 181, 12]], np.uint8))
    save(tmp_path / "val2017" / "a.jpg", PICTURE)
    (tmp_path / "annotations" / "panoptic_val2017").mkdir(parents=True, exist_ok=True)
    return tmp_path


def test_stuff(stuff: Path) -> None:
    data = CocoStuffData(stuff)
    assert len(data.classes.names) == 171
    assert not data.classes.background
    assert data.splits() == ("val2017",)
    mask = data.read("val2017", "a").mask
    assert mask.tolist() == [[0, 255, 79], [80, 170, 11]]  # 11 ids are not used, 12 the first of them
    named = [data.classes.names[id] for id in (0, 79, 80, 170, 11)]
    assert named == ["person", "toothbrush", "banner", "wood", "stop sign"]
    counts_are_those_of_masks(data, "val2017")
    assert data.skipped("val2017") == ()
    copy = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(copy.read_mask("val2017", "a"), mask)


@pytest.mark.parametrize("value", [11, 25, 90, 182, 254])
def test_unused_values(tmp_path: Path, value: int) -> None:
    path = save(tmp_path / "stuffthingmaps" / "val2017" / "a.png", np.full((2, 3), value, np.uint8))
    data = CocoStuffData(tmp_path)
    message = rf"a\.png holds value {value} in 6 pixels, but COCO-Stuff has 171 classes; expected stuffthingmaps as"
    with pytest.raises(UserError, match=message):
        data.read_mask("val2017", "a")
    with pytest.raises(UserError, match=message):
        data.count_mask("val2017", "a", path.read_bytes())


def test_stuff_left_out_and_missing_files(stuff: Path, tmp_path: Path) -> None:
    folder = next(path for path in stuff.glob("*/val2017") if path.parent.name != stuff.name)
    save(folder / "a_labelTrainIds.png", np.zeros((2, 3), np.uint8))
    (folder / "x.json").write_text("")
    data = CocoStuffData(stuff)
    assert data.ids("val2017") == ("a",)
    below = folder.relative_to(stuff).as_posix()
    assert set(data.skipped("val2017")) == {f"{below}/a_labelTrainIds.png", f"{below}/x.json"}
    save(stuff / "val2017" / "b.jpg", PICTURE)
    with pytest.raises(UserError, match=r"has 1 image with no mask: val2017/b\.jpg"):
        CocoStuffData(stuff).ids("val2017")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no stuffthingmaps and no annotations; expected stuffthingmaps"):
        CocoStuffData(tmp_path / "empty")


def test_configurations(panoptic: Path) -> None:
    (panoptic / "stuffthingmaps" / "val2017").mkdir(parents=True)
    for config, kind in (
        (CocoPanopticConfig(root=panoptic), CocoPanopticData),
        (CocoStuffConfig(root=panoptic), CocoStuffData),
    ):
        assert (config.train, config.test) == ("train2017", "val2017")
        assert isinstance(config.open(), kind)
    with pytest.raises(UserError, match=r"'coco-stuff' has no root; set data\.root"):
        CocoStuffConfig().open()
