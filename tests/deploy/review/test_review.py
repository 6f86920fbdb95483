"""Labels suggested by a model, written for review and read back as they were or as they were edited."""

import json
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import faircl
from faircl.data.label_index import index_labels
from faircl.data.masks import decode_mask, write_mask
from faircl.data.sample import Classes
from faircl.deploy.adding.new_images import open_new_images
from faircl.deploy.adding.request import Request
from faircl.deploy.matched_data import TRAIN, MatchedData
from faircl.deploy.matching import Known
from faircl.deploy.review.classes import ReviewClasses
from faircl.deploy.review.images import NewImage, ReviewSource
from faircl.deploy.review.suggesting import write_suggestions
from faircl.progress import SilentReporter
from faircl.readers.folder import FolderData

NAMES = ("background", "traffic light", "Straße 1 2 3", "car, red")
NEW = "Fußgänger & co"
MASK = np.array([[0, 1, 2, 3], [255, 1, 2, 0]], np.uint8)
EDITED = np.array([[4, 1, 2, 3], [0, 4, 3, 0]], np.uint8)


class Says:
    """A model that gives every image the same labels."""

    def __init__(self, mask: np.ndarray, doubtful: np.ndarray | None = None) -> None:
        self.mask, self.doubtful = mask, np.zeros(mask.shape, bool) if doubtful is None else doubtful

    def label(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.mask.copy(), self.doubtful.copy()


def pictures(mask: np.ndarray, given: np.ndarray | None = None) -> list[NewImage]:
    pixels = np.arange(mask.size * 3, dtype=np.uint8).reshape(*mask.shape, 3)
    return [NewImage(id, pixels, None, given) for id in ("a", "site ü/b c")]


def suggest(out: Path, to: str, mask: np.ndarray = MASK, names=NAMES, background: bool = True, **source) -> dict:
    classes = Classes(tuple(names), background)
    images = pictures(mask, source.get("given"))
    review = ReviewClasses.of(classes, [(200, 0, 7), (9, 9, 9), (9, 9, 9)])
    labeller = Says(mask, source.get("doubtful"))
    return write_suggestions(
        labeller, ReviewSource(iter(images), len(images), classes), review, out, to, "run version 2", SilentReporter()
    )


def read_back(settings: dict, names=NAMES, background: bool = True) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Names and masks as `add_classes` reads them for a model of some classes."""
    known = Known(Classes(tuple(names), background), tuple(range(len(names))))
    new = open_new_images(known, Request(settings), SilentReporter())
    data = MatchedData(new.matching.classes, {TRAIN: new.source})
    return new.matching.classes.names, {id: data.read(TRAIN, id).mask for id in new.images}


# ---- a folder


def test_folder(tmp_path):
    done = suggest(tmp_path / "out", "folder")
    assert done["images"] == 2
    assert done["suggested"] == 1
    assert done["areas"] == {NAMES[0]: 2 / 8, NAMES[1]: 2 / 8, NAMES[2]: 2 / 8, NAMES[3]: 1 / 8}
    data = FolderData(tmp_path / "out")
    assert data.classes == Classes(NAMES, True)
    assert data.ids("train") == ("a", "site ü/b c")
    for id in data.ids("train"):
        np.testing.assert_array_equal(data.read("train", id).mask, MASK)
        np.testing.assert_array_equal(data.read("train", id).image, pictures(MASK)[0].pixels)
    assert data.palette.tolist()[:2] == [[0, 0, 0], [9, 9, 9]]  # its own, and black for the background
    assert len({tuple(colour) for colour in data.palette.tolist()}) == 4  # never the same twice


@pytest.mark.parametrize("colour", ["", " 1 2 3"])
def test_a_folder_with_a_new_class_is_read_back_exactly(tmp_path, colour):
    suggest(tmp_path / "out", "folder")
    with open(tmp_path / "out/classes.txt", "a", encoding="utf-8") as file:
        file.write(f"{NEW}{colour}\n")
    for path in (tmp_path / "out/masks/train").rglob("*.png"):
        with Image.open(path) as picture:  # an editor keeps the palette
            picture.putdata(EDITED.ravel().tolist())
            picture.save(path)
    names, masks = read_back({"name": "folder", "root": str(tmp_path / "out")})
    assert names == (*NAMES, NEW)
    assert all((mask == EDITED).all() for mask in masks.values())


def test_more_than_254_classes(tmp_path):
    names = ["background", *(f"c{id}" for id in range(1, 300))]
    mask = np.array([[0, 254, 255], [256, 299, 65535]], np.uint16)
    suggest(tmp_path / "folder", "folder", mask, names)
    np.testing.assert_array_equal(FolderData(tmp_path / "folder").read_mask("train", "a"), mask)
    suggest(tmp_path / "cvat", "cvat", mask, names)
    _, masks = read_back(_cvat_export(tmp_path, EDITED[:, :3], {4: NEW}), names)
    np.testing.assert_array_equal(masks["a"], np.where(EDITED[:, :3] == 4, np.uint16(300), EDITED[:, :3]))
    suggest(tmp_path / "ls", "label-studio", mask, names)
    _, masks = read_back(_studio_export(tmp_path / "ls", np.where(mask == 254, 300, mask), {300: NEW}), names)
    np.testing.assert_array_equal(masks["a"], [[0, 300, 255], [256, 299, 0]])


# ---- CVAT


def _cvat_export(tmp_path: Path, edited: np.ndarray, new: dict[int, str]) -> dict:
    """Unpack what was written, in CVAT's order of labels, with new labels and other masks; add the images."""
    written, export = tmp_path / "cvat", tmp_path / "export"
    with zipfile.ZipFile(written / "annotations.zip") as archive:
        archive.extractall(export)
    (written / "images").rename(export / "JPEGImages")
    head, *rows = (export / "labelmap.txt").read_text(encoding="utf-8").splitlines()
    colours = [row.split(":")[1] for row in rows] + [f"250,250,{id % 256}" for id in new]
    rows += [f"{name}:{colours[len(rows) + at]}::" for at, name in enumerate(new.values())]
    (export / "labelmap.txt").write_text("\n".join([head, *sorted(rows)]) + "\n", encoding="utf-8")
    table = np.array([list(map(int, colour.split(","))) for colour in colours], np.uint8)
    places = {id: len(table) - len(new) + at for at, id in enumerate(new)}
    painted = table[np.vectorize(lambda id: places.get(id, id))(edited)]
    for path in (export / "SegmentationClass").rglob("*.png"):
        Image.fromarray(painted).save(path)
    return {"name": "cvat", "root": str(export)}


def test_cvat_files(tmp_path):
    suggest(tmp_path / "out", "cvat")
    with zipfile.ZipFile(tmp_path / "out/annotations.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
        opened = {name: np.array(Image.open(archive.open(name))) for name in files if name.endswith(".png")}
    ids = ("a", "site ü/b c")
    expected = [f"{place}/{id}.png" for place in ("SegmentationClass", "SegmentationObject") for id in ids]
    assert sorted(files) == sorted([*expected, "ImageSets/Segmentation/default.txt", "labelmap.txt"])
    assert files["ImageSets/Segmentation/default.txt"].decode() == "a\nsite ü/b c\n"
    assert files["labelmap.txt"].decode().splitlines() == [
        "# label:color_rgb:parts:actions",
        "background:0,0,0::",
        "traffic light:9,9,9::",
        "Straße 1 2 3:128,0,0::",
        "car, red:0,128,0::",
    ]
    palette = [[0, 0, 0], [9, 9, 9], [128, 0, 0], [0, 128, 0]]
    unlabelled = np.where(MASK == 255, 0, MASK)  # CVAT has no ignored pixels
    np.testing.assert_array_equal(opened["SegmentationClass/a.png"], np.array(palette, np.uint8)[unlabelled])
    objects = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]], np.uint8)[unlabelled]
    np.testing.assert_array_equal(opened["SegmentationObject/a.png"], objects)  # VOC's colours of 0, 1, 2, 3
    labels = json.loads((tmp_path / "out/labels.json").read_text(encoding="utf-8"))
    assert [(label["name"], label["color"]) for label in labels] == [
        ("traffic light", "#090909"),
        ("Straße 1 2 3", "#800000"),
        ("car, red", "#008000"),
    ]
    assert sorted(path.name for path in (tmp_path / "out/images").rglob("*.png")) == ["a.png", "b c.png"]


@pytest.mark.parametrize("background", [True, False])
def test_a_corrected_cvat_export_is_read_back_exactly(tmp_path, background):
    names = NAMES if background else NAMES[1:]
    shift = 0 if background else 1  # ids of a model without a background begin at the first class
    suggest(tmp_path / "cvat", "cvat", np.where(MASK == 255, 255, MASK - shift).astype(np.uint8), names, background)
    found, masks = read_back(_cvat_export(tmp_path, EDITED, {4: NEW}), names, background)
    assert found == (*names, NEW)
    assert sorted(masks) == ["a", "site ü/b c"]
    expected = EDITED if background else np.where(EDITED == 0, 254, EDITED - 1)  # 254: unlabelled
    assert all((mask == expected).all() for mask in masks.values())


def test_a_name_that_a_labelmap_cannot_hold(tmp_path):
    with pytest.raises(faircl.UserError, match="The class 'red: light' has ':' in it"):
        suggest(tmp_path / "out", "cvat", names=("background", "red: light", "b", "c"))
    with pytest.raises(faircl.UserError, match="'#1' has '#' in it"):
        suggest(tmp_path / "out", "folder", names=("background", "#1", "b", "c"))
    with pytest.raises(faircl.UserError, match="class 'Background' is not a background"):
        suggest(tmp_path / "out", "label-studio", names=("Background", "a", "b", "c"), background=False)
    assert list(tmp_path.iterdir()) == []


# ---- Label Studio


def _studio_export(out: Path, edited: np.ndarray, new: dict[int, str]) -> dict:
    """Export the tasks as annotations, with other masks and new labels."""
    from faircl.data.brush_rle import encode_region

    tasks = json.loads((out / "tasks.json").read_text(encoding="utf-8"))
    label = tasks[0]["predictions"][0]["result"][0]
    tags = ElementTree.parse(out / "label-config.xml").iter("Label")
    by_id = {id: tag.get("value") for id, tag in enumerate(tags, 1)} | new
    for number, task in enumerate(tasks):
        regions = [
            label | {"value": {"format": "rle", "rle": list(encode_region(edited == id)), "brushlabels": [by_id[id]]}}
            for id in np.unique(edited).tolist()
            if id in by_id
        ]
        task |= {"id": number, "annotations": [{"id": number, "result": regions, "was_cancelled": False}]}
    (out / "project-3-at-2026.json").write_text(json.dumps(tasks), encoding="utf-8")
    return {"name": "label-studio", "root": str(out)}


def test_label_studio_files(tmp_path):
    from faircl.data.brush_rle import decode_region

    suggest(tmp_path / "my review", "label-studio")
    tasks = json.loads((tmp_path / "my review/tasks.json").read_text(encoding="utf-8"))
    assert [task["data"]["image"] for task in tasks] == [
        "/data/local-files/?d=my%20review/images/a.png",
        "/data/local-files/?d=my%20review/images/site%20%C3%BC/b%20c.png",
    ]
    (prediction,) = tasks[0]["predictions"]
    assert prediction["model_version"] == "run version 2"
    assert [result["value"]["brushlabels"] for result in prediction["result"]] == [[name] for name in NAMES[1:]]
    for id, result in enumerate(prediction["result"], 1):
        assert (result["original_width"], result["original_height"], result["image_rotation"]) == (4, 2, 0)
        assert (result["type"], result["value"]["format"]) == ("brushlabels", "rle")
        np.testing.assert_array_equal(decode_region(bytes(result["value"]["rle"]), 2, 4), id == MASK)
    ids = [result["id"] for task in tasks for result in task["predictions"][0]["result"]]
    assert len(set(ids)) == 6
    config = (tmp_path / "my review/label-config.xml").read_text(encoding="utf-8")
    assert '<Label value="traffic light" background="#090909" />' in config
    assert 'toName="image"' in config
    assert (prediction["result"][0]["from_name"], prediction["result"][0]["to_name"]) == ("label", "image")


@pytest.mark.parametrize("background", [True, False])
def test_a_corrected_label_studio_export_is_read_back_exactly(tmp_path, background):
    names = NAMES if background else NAMES[1:]
    shift = 0 if background else 1
    suggest(tmp_path / "ls", "label-studio", (MASK - shift).astype(np.uint8), names, background)
    found, masks = read_back(_studio_export(tmp_path / "ls", EDITED, {4: NEW}), names, background)
    assert found == (*names, NEW)
    assert sorted(masks) == ["a", "site ü/b c"]
    expected = EDITED if background else np.where(EDITED == 0, 254, EDITED - 1)
    assert all((mask == expected).all() for mask in masks.values())


# ---- labels that are there already, and doubtful ones


def test_given_labels_stay_and_doubtful_ones_are_ignored(tmp_path):
    given = np.array([[0, 4, 0, 255], [0, 1, 0, 0]], np.uint8)
    doubtful = np.array([[1, 1, 0, 1], [0, 0, 0, 1]], bool)
    names = (*NAMES, NEW)
    done = suggest(tmp_path / "out", "folder", np.full((2, 4), 3, np.uint8), names, given=given, doubtful=doubtful)
    expected = [[255, 4, 3, 255], [3, 1, 3, 255]]
    assert FolderData(tmp_path / "out").read_mask("train", "a").tolist() == expected
    assert done["suggested"] == 5 / 8
    assert done["doubtful"] == 2 / 8


def test_colours_without_end():
    many = ReviewClasses.of(Classes(tuple(map(str, range(300))), False), [(0, 0, 0), (128, 0, 0), (128, 0, 0)])
    assert len({*many.colours, (0, 0, 0), (224, 224, 192)}) == 302
    assert many.colours[1] == (128, 0, 0)
    few = ReviewClasses.of(Classes(("background", "a"), True), [(5, 5, 5), (64, 0, 0)])
    assert few.colours == ((0, 0, 0), (64, 0, 0))
    palette = few.palette().tolist()
    assert len({tuple(colour) for colour in palette}) == 256
    assert palette[:2] == [[0, 0, 0], [64, 0, 0]]
    assert palette[255] == [224, 224, 192]


# ---- a real run


@pytest.fixture
def photos(tmp_path, _street) -> Path:
    folder = tmp_path / "photos"
    (folder / "deep").mkdir(parents=True)
    for at, path in enumerate(sorted((_street / "images/train").rglob("*.png"))[:3]):
        with Image.open(path) as picture:
            picture.save(folder / ("a.png", "deep/b.jpg", "c.tif")[at])
    return folder


def test_labels_of_a_run(tiny_run, photos, tmp_path):
    out = tmp_path / "out"
    done = faircl.suggest_labels(tiny_run.path, photos, out, reporter=SilentReporter())
    assert done["images"] == 3
    data, model = FolderData(out), faircl.load(tiny_run.path)
    assert data.ids("train") == ("a", "c", "deep/b")
    assert (out / "images/train/deep/b.jpg").read_bytes() == (photos / "deep/b.jpg").read_bytes()
    assert (out / "images/train/c.png").is_file()  # a browser shows no TIFF
    assert dict(enumerate(data.classes.names)) == model.names
    for id, path in {"a": "a.png", "deep/b": "deep/b.jpg", "c": "c.tif"}.items():
        np.testing.assert_array_equal(data.read_mask("train", id), model.predict(photos / path).mask)


def test_doubtful_pixels_are_those_of_a_low_softmax(tiny_run, photos, tmp_path):
    model = faircl.load(tiny_run.path, device="cpu")
    pixels = torch.from_numpy(np.array(Image.open(photos / "a.png").convert("RGB"))).permute(2, 0, 1)[None] / 255
    with torch.no_grad():
        logits = F.interpolate(model.network(pixels).logits.float(), (32, 32), mode="bilinear", align_corners=False)
    highest = torch.softmax(logits, 1).max(1).values[0].numpy()
    least = float(np.median(highest))
    faircl.suggest_labels(
        tiny_run.path, [photos / "a.png"], tmp_path / "out", min_confidence=least, reporter=SilentReporter()
    )
    clear = np.abs(highest - least) > 1e-6
    mask = decode_mask(tmp_path / "out/masks/train/a.png")
    np.testing.assert_array_equal((mask == 255)[clear], (highest < least)[clear])
    assert 0 < (mask == 255).mean() < 1


def test_labels_of_data_stay(tiny_run, street, tmp_path):
    with open(street / "classes.txt", "a", encoding="utf-8") as file:
        file.write("lamp\n")
    path = street / "masks/train/train-00000.png"
    mask = decode_mask(path)
    mask[:2], mask[2:4] = 11, 255
    write_mask(path, mask)
    out = tmp_path / "out"
    faircl.suggest_labels(tiny_run.path, None, out, data=street, reporter=SilentReporter())
    data, model = FolderData(out), faircl.load(tiny_run.path)
    assert data.classes.names[-1] == "lamp"
    predicted = model.predict(street / "images/train/train-00000.png").mask
    np.testing.assert_array_equal(data.read_mask("train", "train-00000"), np.where(mask == 0, predicted, mask))
    assert list(index_labels(data, "train").ids) == list(FolderData(street).ids("train"))


def test_a_turned_photograph_is_written_as_the_model_sees_it(tiny_run, tmp_path):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 40, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(tmp_path / "a.jpg", exif=exif)
    faircl.suggest_labels(tiny_run.path, tmp_path / "a.jpg", tmp_path / "out", to="cvat", reporter=SilentReporter())
    with Image.open(tmp_path / "out/images/a.png") as written:
        assert written.size == (40, 20)
        assert written.getexif().get(0x0112, 1) == 1
