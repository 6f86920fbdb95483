import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircl.data.file_data import FileData
from faircl.data.label_index import index_labels
from faircl.data.mask_coding import count_ids
from faircl.errors import UserError
from faircl.readers.camvid import CamVidConfig, CamVidData, SegNetCamVidData, camvid_split, open_camvid

NAMES = ("sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist")
PICTURE = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10
# Sky, Void, Sidewalk / Wall, SUVPickupTruck, Bicyclist
COLOURS = [[(128, 128, 128), (0, 0, 0), (0, 0, 192)], [(64, 192, 0), (64, 128, 192), (0, 128, 192)]]
PAINTED = np.array(COLOURS, np.uint8)
IDS = [[0, 255, 4], [1, 8, 10]]


def save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def add_original(root: Path, id: str, mask: np.ndarray = PAINTED, stills: str = "701_StillsRaw_full") -> None:
    save(root / stills / f"{id}.png", PICTURE)
    save(root / "LabeledApproved_full" / f"{id}_L.png", mask)


def add_segnet(root: Path, id: str, split: str, mask: np.ndarray) -> None:
    save(root / split / f"{id}.png", PICTURE)
    save(root / f"{split}annot" / f"{id}.png", mask)


def counts_are_those_of_masks(data: FileData, split: str) -> None:
    for id in data.ids(split):
        counted = data.count_mask(split, id, data.mask_path(split, id).read_bytes())
        expected = count_ids(data.read_mask(split, id), 11)
        np.testing.assert_array_equal(counted.pixels, expected.pixels)
        assert counted[1:] == expected[1:]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    for id in ("0016E5_07961", "0001TP_008550", "0006R0_f00930", "0001TP_008520", "Seq05VD_f00000"):
        add_original(tmp_path, id)
    return tmp_path


# ---- the authors' files


@pytest.mark.parametrize(
    ("id", "split"),
    [
        ("0001TP_006690", "train"),
        ("0001TP_008520", "train"),
        ("0001TP_008550", "test"),
        ("0001TP_010380", "test"),
        ("0006R0_f00930", "train"),
        ("0016E5_00390", "train"),
        ("0016E5_07920", "train"),
        ("0016E5_07959", "val"),
        ("0016E5_08159", "val"),
        ("0016E5_08190", "train"),
        ("0016E5_08640", "train"),
        ("Seq05VD_f05100", "test"),
        ("Seq05VD", None),
        ("0016E6_00390", None),
        ("0016E5_00390_L", None),
    ],
)
def test_division(id: str, split: str | None) -> None:
    assert camvid_split(id) == split


def test_original(original: Path) -> None:
    data = open_camvid(original)
    assert isinstance(data, CamVidData)
    assert data.classes.names == NAMES
    assert not data.classes.background
    assert data.splits() == ("train", "val", "test")
    assert data.ids("train") == ("0001TP_008520", "0006R0_f00930")
    assert data.ids("val") == ("0016E5_07961",)
    assert data.ids("test") == ("0001TP_008550", "Seq05VD_f00000")
    sample = data.read("val", "0016E5_07961")
    np.testing.assert_array_equal(sample.image, PICTURE)
    assert sample.mask.tolist() == IDS
    assert sample.mask.dtype == np.uint8
    counts_are_those_of_masks(data, "train")
    assert data.palette is not None
    assert data.palette[3].tolist() == [128, 64, 128]


def test_original_with_shrunk_masks_and_raw_folder(tmp_path: Path) -> None:
    add_original(tmp_path, "0016E5_07961", stills="raw")
    path = tmp_path / "LabeledApproved_full" / "0016E5_07961_L.png"
    Image.fromarray(PAINTED).quantize(6).save(path)  # six colours in an order of its own
    with Image.open(path) as picture:
        assert picture.mode == "P"
    data = open_camvid(tmp_path)
    assert data.read("val", "0016E5_07961").mask.tolist() == IDS
    assert index_labels(data, "val", cache=False).pixels.tolist() == [[1, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1]]
    counts_are_those_of_masks(data, "val")


def test_original_leaves_nothing_out_in_silence(original: Path) -> None:
    labels, stills = original / "LabeledApproved_full", original / "701_StillsRaw_full"
    for path in (labels / "Thumbs.db", stills / ".DS_Store"):
        path.write_bytes(b"x")
    save(labels / "0016E5_07961.png", PAINTED)  # no _L
    add_original(original, "another_00001")
    (stills / "0016E5_07961.png").rename(stills / "0016E5_07961.PNG")
    data = open_camvid(original)
    expected = {
        "LabeledApproved_full/Thumbs.db",
        "LabeledApproved_full/0016E5_07961.png",
        "LabeledApproved_full/another_00001_L.png",
        "701_StillsRaw_full/.DS_Store",
        "701_StillsRaw_full/another_00001.png",
    }
    assert set(data.skipped("train")) == expected
    assert sorted(data.skipped("train+val")) == sorted(expected)  # each once
    assert len(data.ids("train+val")) == 3
    assert data.read("val", "0016E5_07961").mask.tolist() == IDS


def test_original_without_images_or_masks(original: Path) -> None:
    stills = original / "701_StillsRaw_full"
    (stills / "0001TP_008520.png").unlink()
    data = open_camvid(original)
    with pytest.raises(UserError, match=r"has 1 mask with no image: LabeledApproved_full/0001TP_008520_L\.png"):
        data.check_images("train")
    data.check_images("test")
    (original / "LabeledApproved_full" / "Seq05VD_f00000_L.png").unlink()
    with pytest.raises(UserError, match=r"has 1 image with no mask: 701_StillsRaw_full/Seq05VD_f00000\.png"):
        open_camvid(original).ids("test")
    for path in stills.iterdir():
        path.unlink()
    stills.rmdir()
    data = open_camvid(original)
    assert data.read_mask("val", "0016E5_07961").tolist() == IDS
    with pytest.raises(UserError, match=r"0016E5_07961_L\.png has no image"):
        data.read("val", "0016E5_07961")


def test_unknown_colour(original: Path) -> None:
    add_original(original, "0016E5_07961", np.full((2, 3, 3), 7, np.uint8))
    data = open_camvid(original)
    message = r"0016E5_07961_L\.png has colour \(7, 7, 7\) in 6 pixels.*no class has that colour in CamVid's 32 labels"
    with pytest.raises(UserError, match=message):
        data.read_mask("val", "0016E5_07961")
    with pytest.raises(UserError, match=message):
        index_labels(data, "val", cache=False)


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    add_original(tmp_path, "0016E5_07961")
    with pytest.raises(UserError, match=r"Split 'test' of .* is empty"):
        open_camvid(tmp_path).ids("test")
    with pytest.raises(UserError, match=r"has no split 'x'\. It has: train, val, test"):
        open_camvid(tmp_path).ids("x")


# ---- SegNet's files


def test_segnet(tmp_path: Path) -> None:
    add_segnet(tmp_path, "0016E5_07961", "train", np.array([[0, 11, 4], [1, 255, 10]], np.uint8))
    add_segnet(tmp_path, "a", "test", np.array([[9, 9, 9], [3, 3, 11]], np.uint8))
    (tmp_path / "trainannot" / "notes.txt").write_text("x")
    data = open_camvid(tmp_path)
    assert isinstance(data, SegNetCamVidData)
    assert data.classes.names == NAMES
    assert data.splits() == ("train", "test")
    assert data.ids("train") == ("0016E5_07961",)  # by folder, not by name
    assert data.read("train", "0016E5_07961").mask.tolist() == [[0, 255, 4], [1, 255, 10]]
    assert data.read("test", "a").mask.tolist() == [[9, 9, 9], [3, 3, 255]]
    assert data.skipped("train") == ("trainannot/notes.txt",)
    counts_are_those_of_masks(data, "train")
    index = index_labels(data, "test", cache=False)
    assert index.pixels.tolist() == [[0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 0]]
    assert index.ignored is not None
    assert index.ignored.tolist() == [1]
    copy = pickle.loads(pickle.dumps(data))
    assert copy.read("test", "a").mask.tolist() == [[9, 9, 9], [3, 3, 255]]


def test_segnet_errors(tmp_path: Path) -> None:
    add_segnet(tmp_path, "a", "train", np.full((2, 3), 12, np.uint8))
    with pytest.raises(
        UserError, match=r"a\.png holds value 12 in 6 pixels.*expected 0 to 10, and 11 for ignored pixels"
    ):
        open_camvid(tmp_path).read_mask("train", "a")
    save(tmp_path / "train" / "b.png", PICTURE)
    with pytest.raises(UserError, match=r"has 1 image with no mask: train/b\.png; unpack or add"):
        open_camvid(tmp_path).ids("train")


# ---- which of the two


def test_layouts(tmp_path: Path, original: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere does not exist.*expected 701_StillsRaw_full/ and LabeledApproved"):
        open_camvid(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty is not CamVid; expected 701_StillsRaw_full/"):
        open_camvid(tmp_path / "empty")
    (original / "trainannot").mkdir()
    with pytest.raises(UserError, match=r"holds both LabeledApproved_full/ and SegNet's folders; set data\.root"):
        open_camvid(original)


def test_configuration(original: Path) -> None:
    config = CamVidConfig(root=original)
    assert (config.train, config.test) == ("train", "test")
    data = config.open()
    copy = pickle.loads(pickle.dumps(data))
    assert copy.ids("val") == ("0016E5_07961",)
    assert copy.read("val", "0016E5_07961").mask.tolist() == IDS
    with pytest.raises(UserError, match=r"'camvid' has no root; set data\.root"):
        CamVidConfig().open()
