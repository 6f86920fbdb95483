import io
import os
import pickle
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from faircl.config.run import resolve
from faircl.data.label_index import index_labels
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.readers.huggingface import HuggingFaceConfig, HuggingFaceData

PICTURE = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10
MASK = np.array([[0, 1, 2], [255, 2, 1]], np.uint8)
NAMES = ("background", "cat", "dog")


@pytest.fixture
def hf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the library, writing below tmp_path and never going to the network."""
    for variable, value in (("HF_HOME", "hf"), ("HF_DATASETS_CACHE", "hf/datasets")):
        monkeypatch.setenv(variable, str(tmp_path / value))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    library = pytest.importorskip("datasets")
    # Had it been imported before, it would not look at the environment again.
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "hf" / "datasets")
    monkeypatch.setattr(library.config, "HF_CACHE_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    library.disable_progress_bars()
    return library


def picture(array: np.ndarray, kind: str = "PNG", **options: Any) -> dict[str, Any]:
    target = io.BytesIO()
    Image.fromarray(array).save(target, kind, **options)
    return {"bytes": target.getvalue(), "path": None}


def table(hf: ModuleType, labels: list[Any], feature: Any = None, images: list[Any] | None = None) -> Any:
    images = images or [picture(PICTURE)] * len(labels)
    features = hf.Features({"number": hf.Value("int32"), "image": hf.Image(), "label": feature or hf.Image()})
    rows = {"number": list(range(len(labels))), "image": images, "label": labels}
    return hf.Dataset.from_dict(rows, features=features)


def saved(hf: ModuleType, path: Path, labels: list[Any], feature: Any = None, images: list[Any] | None = None) -> str:
    hf.DatasetDict({"train": table(hf, labels, feature, images)}).save_to_disk(path)
    return str(path)


@pytest.fixture
def path(hf: ModuleType, tmp_path: Path) -> str:
    return saved(hf, tmp_path / "saved", [picture(MASK), picture(MASK[::-1])])


# ---- reading


def test_saved_to_disk(path: str) -> None:
    data: SegmentationData = HuggingFaceData(path, classes=NAMES)
    assert data.classes.names == NAMES
    assert data.classes.background
    assert data.ids("train") == ("000000", "000001")
    sample = data.read("train", "000000")
    np.testing.assert_array_equal(sample.image, PICTURE)
    np.testing.assert_array_equal(sample.mask, MASK)
    assert sample.mask.dtype == np.uint8
    np.testing.assert_array_equal(data.read_mask("train", "000001"), MASK[::-1])
    index = index_labels(data, "train", cache=False)
    assert index.pixels.tolist() == [[1, 2, 2]] * 2
    assert index.ignored is not None
    assert index.ignored.tolist() == [1, 1]


def test_pickle(path: str) -> None:
    copy = pickle.loads(pickle.dumps(HuggingFaceData(path, classes=NAMES)))
    np.testing.assert_array_equal(copy.read("train", "000001").mask, MASK[::-1])


def test_one_split_saved_alone(hf: ModuleType, tmp_path: Path) -> None:
    table(hf, [picture(MASK)]).save_to_disk(tmp_path / "one")
    data = HuggingFaceData(str(tmp_path / "one"), classes=NAMES)
    assert data.splits() == ("train",)
    np.testing.assert_array_equal(data.read("train", "000000").mask, MASK)


def test_parquet(hf: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for split in ("train", "test"):
        table(hf, [picture(MASK)]).to_parquet(tmp_path / "files" / f"{split}.parquet")
    data = HuggingFaceData(str(tmp_path / "files"), classes=NAMES)
    assert set(data.splits()) == {"train", "test"}
    np.testing.assert_array_equal(data.read("test", "000000").mask, MASK)
    single = HuggingFaceData(str(tmp_path / "files" / "test.parquet"), classes=NAMES)
    np.testing.assert_array_equal(single.read("train", "000000").image, PICTURE)
    assert (tmp_path / "hf" / "datasets").is_dir()  # and nothing elsewhere


def test_image_folder(hf: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "ü folder" / "train"
    folder.mkdir(parents=True)
    Image.fromarray(PICTURE).save(folder / "a.png")
    Image.fromarray(MASK).save(folder / "a mask.png")
    (folder / "metadata.csv").write_text("file_name,label_file_name\na.png,a mask.png\n")
    data = HuggingFaceData(str(folder.parent), classes=NAMES)
    sample = data.read("train", "000000")
    np.testing.assert_array_equal(sample.image, PICTURE)
    np.testing.assert_array_equal(sample.mask, MASK)
    (folder / "a mask.png").unlink()
    with pytest.raises(UserError, match=r"Cannot read mask .*a mask\.png: No such file"):
        data.read_mask("train", "000000")


def test_images_are_not_turned_by_their_tag(hf: ModuleType, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = picture(PICTURE, "JPEG", exif=exif)
    path = saved(hf, tmp_path / "x", [picture(MASK)], images=[turned])
    assert HuggingFaceData(path, classes=NAMES).read("train", "000000").image.shape == (2, 3, 3)


def test_nested_lists_name_their_classes(hf: ModuleType, tmp_path: Path) -> None:
    feature = hf.List(hf.List(hf.ClassLabel(names=["road", "sky"])))
    path = saved(hf, tmp_path / "x", [[[0, 1, 1], [1, 0, 0]]], feature)
    data = HuggingFaceData(path)
    assert data.classes.names == ("road", "sky")
    assert not data.classes.background
    assert data.read("train", "000000").mask.tolist() == [[0, 1, 1], [1, 0, 0]]


def test_arrays(hf: ModuleType, tmp_path: Path) -> None:
    path = saved(hf, tmp_path / "x", [[[0, 1, 9], [1, 0, 0]]], hf.Array2D((2, 3), "int64"))
    data = HuggingFaceData(path, classes=("a", "b"), ignore_value=9)
    assert data.read_mask("train", "000000").tolist() == [[0, 1, 255], [1, 0, 0]]
    for wrong in ([[0, -1, 0], [0, 0, 0]], [[0, 70000, 0], [0, 0, 0]]):
        path = saved(hf, tmp_path / str(wrong), [wrong], hf.Array2D((2, 3), "int64"))
        with pytest.raises(UserError, match="is not rows of equally many numbers from 0 to 65535"):
            HuggingFaceData(path, classes=("a", "b")).read_mask("train", "000000")
    path = saved(hf, tmp_path / "y", [[[0, 1], [1]]], hf.List(hf.List(hf.Value("int64"))))
    with pytest.raises(UserError, match="is not rows of equally many numbers"):
        HuggingFaceData(path, classes=("a", "b")).read_mask("train", "000000")


def test_many_classes_and_void(hf: ModuleType, tmp_path: Path) -> None:
    deep = np.array([[0, 299, 400], [1, 255, 2]], np.uint16)
    path = saved(hf, tmp_path / "x", [picture(deep)])
    names = [f"c{number}" for number in range(300)]
    data = HuggingFaceData(path, classes=names, ignore_value=400)
    assert data.read_mask("train", "000000").tolist() == [[0, 299, 65535], [1, 255, 2]]
    with pytest.raises(UserError, match=r"data\.ignore_value is 255, which is also .*such as 65535"):
        HuggingFaceData(path, classes=names)


@pytest.mark.parametrize(
    ("names", "setting", "expected"),
    [(NAMES, "auto", True), (("a", "b", "c"), "auto", False), (NAMES, "none", False), (("a", "b", "c"), "first", True)],
)
def test_background(path: str, names: tuple[str, ...], setting: str, expected: bool) -> None:
    assert HuggingFaceData(path, classes=names, background=setting).classes.background is expected


# ---- mistakes


def test_values_and_kinds_of_masks(hf: ModuleType, tmp_path: Path) -> None:
    rgb, none, broken = picture(PICTURE), None, {"bytes": b"x", "path": None}
    path = saved(hf, tmp_path / "x", [picture(MASK), rgb, none, broken, picture(MASK[:, :2]), picture(MASK, "JPEG")])
    data = HuggingFaceData(path, classes=NAMES)
    for row, message in (
        ("000001", r"Mask .*x:train:000001:label is a colour picture; expected one number per pixel"),
        ("000002", "Row 000002 of split 'train' of .* has no label; remove the row"),
        ("000003", "Mask .*:000003:label cannot be decoded: it is not a complete picture"),
        ("000005", "is a JPEG file, whose compression changes class ids"),
        ("000006", "No row '000006' in split 'train' of .*; it has 0 to 5"),
        ("-1", "No row '-1'"),
    ):
        with pytest.raises(UserError, match=message):
            data.read_mask("train", row)
    with pytest.raises(UserError, match=r"Row 000004 .* has a mask of 2x2 pixels, but its image is 3x2"):
        data.read("train", "000004")
    few = HuggingFaceData(path, classes=("a", "b"))
    with pytest.raises(UserError, match=r"holds value 2 in 2 pixels, but data\.classes has 2 classes"):
        few.read_mask("train", "000000")


def test_columns(hf: ModuleType, path: str, tmp_path: Path) -> None:
    message = r"has no column 'labels'\. Did you mean 'label'\? It has: number, image, label; set data\.label_column"
    with pytest.raises(UserError, match=message):
        HuggingFaceData(path, label_column="labels", classes=NAMES)
    with pytest.raises(UserError, match=r"has no column 'pixels'.*set data\.image_column"):
        HuggingFaceData(path, image_column="pixels", classes=NAMES)
    with pytest.raises(UserError, match=r"Column 'number' of .* holds Value\('int32'\); expected pictures"):
        HuggingFaceData(path, label_column="number", classes=NAMES)


def test_a_split_without_masks_beside_others(hf: ModuleType, tmp_path: Path) -> None:
    whole = table(hf, [picture(MASK)])
    hf.DatasetDict({"test": whole.remove_columns("label"), "train": whole}).save_to_disk(tmp_path / "x")
    data = HuggingFaceData(str(tmp_path / "x"), classes=NAMES)
    np.testing.assert_array_equal(data.read("train", "000000").mask, MASK)
    with pytest.raises(UserError, match=r"Split 'test' of .*x has no column 'label'\. It has: number, image; set data"):
        data.ids("test")


def test_classes_and_settings(path: str) -> None:
    with pytest.raises(UserError, match=r"does not name its classes; set data\.classes"):
        HuggingFaceData(path)
    with pytest.raises(UserError, match=r"data\.classes names 'a' twice"):
        HuggingFaceData(path, classes=("a", "b", "a"))
    with pytest.raises(UserError, match=r"data\.ignore_value is 2, which is also the id of class 'dog'.*such as 255"):
        HuggingFaceData(path, classes=NAMES, ignore_value=2)
    with pytest.raises(UserError, match=r"Unknown background setting 'frist'. Did you mean 'first'\?"):
        HuggingFaceData(path, classes=NAMES, background="frist")


def test_splits(hf: ModuleType, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"has no split 'trian'\. Did you mean 'train'\? It has: train\."):
        HuggingFaceData(path, classes=NAMES).ids("trian")
    monkeypatch.setattr(hf, "load_from_disk", lambda path: hf.DatasetDict({"train": table(hf, [])}))
    with pytest.raises(UserError, match=r"Split 'train' of .* is empty"):
        HuggingFaceData(path, classes=NAMES).ids("train")


def test_paths(hf: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for nowhere in (str(tmp_path / "nowhere"), "./nowhere", "a/b/c"):
        with pytest.raises(UserError, match=r"Data folder .* does not exist; set data\.path"):
            HuggingFaceData(nowhere, classes=NAMES)
    (tmp_path / "nothing").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "state.json").write_text("{")
    for name in ("nothing", "broken"):
        with pytest.raises(UserError, match=rf"Cannot open the Hugging Face data set .*{name}: .*; check data\.path"):
            HuggingFaceData(str(tmp_path / name), classes=NAMES)

    asked: list[Any] = []

    def unreachable(*given: Any) -> None:
        asked.append(given)
        raise ConnectionError("Couldn't reach 'someone/something' on the Hub.\nmore")

    monkeypatch.setattr(hf, "load_dataset", unreachable)
    with pytest.raises(UserError, match=r"data set someone/something: Couldn't reach .* on the Hub; check data\.path"):
        HuggingFaceData("someone/something", "small", classes=NAMES)
    assert asked == [("someone/something", "small")]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> ModuleType:
        if name == "datasets":
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr("faircl.readers.huggingface.import_module", load)
    with pytest.raises(UserError, match=r"needs the library datasets; install it with: pip install 'faircl\[hugg"):
        HuggingFaceData("x", classes=NAMES)


def test_configuration(path: str) -> None:
    tree = {
        "data": {"name": "huggingface", "path": path, "classes": list(NAMES)},
        "model": "small",
        "method": "finetune",
    }
    config = resolve(tree).data
    assert isinstance(config, HuggingFaceConfig)
    assert (config.train, config.test, config.image_column, config.label_column) == ("train", "test", "image", "label")
    assert (config.config_name, config.background, config.ignore_value) == (None, "auto", 255)
    np.testing.assert_array_equal(config.open().read_mask("train", "000000"), MASK)
    with pytest.raises(UserError, match=r"'huggingface' has no path; set data\.path"):
        HuggingFaceConfig().open()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
