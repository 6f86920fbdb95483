import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircl.data.colour_masks import ColourCoding
from faircl.data.label_index import index_labels
from faircl.data.mask_coding import MaskCoding, count_ids
from faircl.data.masks import ColourTable
from faircl.errors import UserError
from faircl.readers.cvat import CvatConfig, CvatData, read_labelmap

LABELMAP = "# label:color_rgb:parts:actions\ncar:10,20,30::\nbackground:0,0,0::\nred: light:250, 0,0:a,b:c\n"
PAINTED = np.array([[[10, 20, 30], [0, 0, 0], [0, 0, 0]], [[250, 0, 0], [10, 20, 30], [250, 0, 0]]], np.uint8)
IDS = [[1, 0, 0], [2, 1, 2]]
PICTURE = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10


def save(path: Path, image: Image.Image) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def add(root: Path, id: str, suffix: str = ".png") -> None:
    save(root / "JPEGImages" / (id + suffix), Image.fromarray(PICTURE))
    save(root / "SegmentationClass" / f"{id}.png", Image.fromarray(PAINTED))
    save(root / "SegmentationObject" / f"{id}.png", Image.fromarray(PAINTED))


def write_list(root: Path, name: str, *ids: str) -> None:
    path = root / "ImageSets" / "Segmentation" / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{id}\n" for id in ids), encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "labelmap.txt").write_text(LABELMAP)
    for id in ("b", "a"):
        add(tmp_path, id)
    write_list(tmp_path, "default", "b", "a")
    return tmp_path


def refused(root: Path, message: str, split: str = "default") -> None:
    with pytest.raises(UserError, match=message):
        CvatData(root).ids(split)


# ---- reading


def test_reading(root: Path) -> None:
    data = CvatData(root)
    assert data.classes.names == ("background", "car", "red: light")  # background first, wherever it stands
    assert data.classes.background
    assert data.palette is not None
    assert data.palette.tolist() == [[0, 0, 0], [10, 20, 30], [250, 0, 0]]
    assert data.splits() == ("default",)
    assert data.ids("default") == ("b", "a")
    sample = data.read("default", "a")
    np.testing.assert_array_equal(sample.image, PICTURE)
    assert sample.mask.tolist() == IDS
    assert sample.mask.dtype == np.uint8
    assert data.skipped("default") == ()


def test_no_background(root: Path) -> None:
    (root / "labelmap.txt").write_text("car:10,20,30::\nlight:250,0,0::\nroad:0,0,0\n")
    data = CvatData(root)
    assert data.classes.names == ("car", "light", "road")
    assert not data.classes.background
    assert data.read_mask("default", "a").tolist() == [[0, 2, 2], [1, 0, 1]]


def test_names_with_folders_spaces_and_letters_of_any_kind(root: Path) -> None:
    ids = ("site 1/frame 0001", "ü/日本", "x.y", "quoted name")
    for id, suffix in zip(ids, (".JPG", ".webp", ".bmp", ".tiff"), strict=True):
        add(root, id, suffix)
    write_list(root, "train", *ids[:3], '"quoted name"', "", "  ")
    masks = root / "SegmentationClass"
    (masks / "x.y.png").rename(masks / "x.y.PNG")
    data = CvatData(root)
    assert data.ids("train") == ids
    assert [data.read("train", id).mask.tolist() for id in ids] == [IDS] * 4
    assert [data.domain("train", id) for id in ids] == ["site 1", "ü", None, None]


def test_linked_files(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for kind in ("JPEGImages", "SegmentationClass"):
        (root / kind).rename(elsewhere / kind)
        (root / kind).symlink_to(elsewhere / kind, target_is_directory=True)
    assert CvatData(root).read("default", "a").mask.tolist() == IDS


def test_what_no_list_names_is_said(root: Path) -> None:
    add(root, "train only")
    add(root, "forgotten")
    write_list(root, "train", "train only")
    for path in (root / "SegmentationClass" / ".DS_Store", root / "JPEGImages" / "notes.txt"):
        path.write_bytes(b"x")
    data = CvatData(root)
    assert set(data.skipped("default")) == {
        "SegmentationClass/forgotten.png",
        "JPEGImages/forgotten.png",
        "SegmentationClass/.DS_Store",
        "JPEGImages/notes.txt",
    }


def test_images_nobody_has_annotated(root: Path) -> None:
    (root / "SegmentationClass" / "b.png").unlink()
    data = CvatData(root)
    assert data.ids("default") == ("a",)
    assert data.skipped("default") == ("JPEGImages/b.png",)
    (root / "JPEGImages" / "b.png").unlink()
    refused(root, r"default\.txt has 1 id with neither image nor mask: b; expected .*SegmentationClass.b\.png")


def test_masks_alone(root: Path) -> None:
    for path in (root / "JPEGImages").iterdir():
        path.unlink()
    (root / "JPEGImages").rmdir()
    data = CvatData(root)
    assert data.read_mask("default", "a").tolist() == IDS
    assert index_labels(data, "default", cache=False).pixels.tolist() == [[2, 2, 2]] * 2
    with pytest.raises(UserError, match=r"SegmentationClass.a\.png has no image; add it or remove the mask"):
        data.read("default", "a")
    with pytest.raises(UserError, match=r"has 2 masks with no image: SegmentationClass/b\.png"):
        data.check_images("default")


def test_pickle(root: Path) -> None:
    data = CvatData(root)
    data.ids("default")
    copy = pickle.loads(pickle.dumps(data))
    assert copy.read("default", "a").mask.tolist() == IDS


# ---- colours, however stored


def shrunk() -> Image.Image:
    """The same colours as a palette in an order of its own: an index is no class id."""
    image = Image.fromarray(np.array([[2, 1, 1], [0, 2, 0]], np.uint8))
    image.putpalette([250, 0, 0, 0, 0, 0, 10, 20, 30])
    return image


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "P"])
def test_stored_colours(root: Path, kind: str) -> None:
    image = shrunk() if kind == "P" else Image.fromarray(PAINTED).convert(kind)
    path = save(root / "SegmentationClass" / "a.png", image)
    data = CvatData(root)
    assert data.read_mask("default", "a").tolist() == IDS
    counted = data.count_mask("default", "a", path.read_bytes())
    expected = count_ids(np.array(IDS, np.uint8), 3)
    assert counted.pixels.tolist() == expected.pixels.tolist() == [2, 2, 2]
    assert counted[1:] == expected[1:] == (0, (2, 3))


def test_greys_are_colours_too(root: Path) -> None:
    (root / "labelmap.txt").write_text("background:0,0,0::\nwhite:255,255,255::\ngrey:1,1,1::\n")
    folder = root / "SegmentationClass"
    bits = save(folder / "a.png", Image.fromarray(np.array([[True, False, True]])))
    grey = save(folder / "b.png", Image.fromarray(np.array([[1, 0, 255]], np.uint8)))
    data = CvatData(root)
    for id, path, ids in (("a", bits, [[1, 0, 1]]), ("b", grey, [[2, 0, 1]])):
        assert data.read_mask("default", id).tolist() == ids
        counted = data.count_mask("default", id, path.read_bytes())
        assert counted.pixels.tolist() == np.bincount(ids[0], minlength=3).tolist()


def test_unknown_colours_are_never_indices(root: Path) -> None:
    folder = root / "SegmentationClass"
    index = save(folder / "a.png", Image.fromarray(np.array([[0, 1, 2]], np.uint8)))  # greys 1 and 2
    image = shrunk()
    image.putpalette([250, 0, 0, 0, 0, 0, 9, 9, 9])
    palette = save(folder / "b.png", image)
    data = CvatData(root)
    for id, path, colour in (("a", index, "1, 1, 1"), ("b", palette, "9, 9, 9")):
        message = rf"{id}\.png has colour \({colour}\) .*no class has that colour in labelmap\.txt"
        with pytest.raises(UserError, match=message):
            data.read_mask("default", id)
        with pytest.raises(UserError, match=message):
            data.count_mask("default", id, path.read_bytes())


def test_pictures_that_are_no_masks(root: Path) -> None:
    folder = root / "SegmentationClass"
    clear = Image.fromarray(PAINTED).convert("RGBA")
    clear.putalpha(100)
    deep = Image.fromarray(np.zeros((2, 3), np.uint16))
    for image, kind, message in (
        (clear, "PNG", "has transparent pixels"),
        (deep, "PNG", "has Pillow mode I;16; expected 8-bit colours"),
        (Image.fromarray(PAINTED), "JPEG", "is a JPEG file, whose compression changes colours"),
    ):
        image.save(folder / "a.png", format=kind)
        with pytest.raises(UserError, match=message):
            CvatData(root).read_mask("default", "a")
    (folder / "a.png").write_bytes(b"x")
    with pytest.raises(UserError, match=r"Mask .*a\.png cannot be decoded"):
        CvatData(root).read_mask("default", "a")


def test_painted_masks_have_a_fingerprint_of_their_own() -> None:
    table = ColourTable({(0, 0, 0): 0, (1, 1, 1): 1})
    assert ColourCoding(2, table).fingerprint != MaskCoding(2, table).fingerprint
    assert ColourCoding(2, table).fingerprint == ColourCoding(2, table).fingerprint
    assert ColourCoding(2, table).fingerprint != ColourCoding(2, ColourTable({(0, 0, 0): 0})).fingerprint


# ---- mistakes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "labelmap.txt names no class"),
        ("# only this\n", "labelmap.txt names no class"),
        ("car\n", "has the line 'car'; expected 'name:r,g,b:parts:actions'"),
        ("car:::\n", "has the line 'car:::'"),
        ("car:1,2::\n", "has the line 'car:1,2::'"),
        ("car:1,2,256::\n", r"gives 'car' the colour \(1, 2, 256\); red, green and blue go from 0 to 255"),
        ("car:1,2,3::\ncar:3,2,1::\n", "names 'car' twice"),
        ("car:1,2,3::\nbus:1,2,3::\n", r"gives colour \(1, 2, 3\) to 'car' and to 'bus'"),
    ],
)
def test_labelmap_errors(root: Path, text: str, message: str) -> None:
    (root / "labelmap.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        CvatData(root)


def test_labelmap_encodings(tmp_path: Path) -> None:
    path = tmp_path / "labelmap.txt"
    path.write_bytes("\ufeffBäcker:1,2,3::\r\n\r\n".encode())
    assert read_labelmap(path) == {"Bäcker": (1, 2, 3)}
    path.write_bytes(b"caf\xe9:1,2,3::\n")
    with pytest.raises(UserError, match=r"Cannot read .*labelmap\.txt: it is not UTF-8 text"):
        read_labelmap(path)


def test_lists(root: Path) -> None:
    refused(
        root, r"has no list ImageSets/Segmentation/train\.txt\. It has: default; name the lists in data\.train", "train"
    )
    write_list(root, "train", "a", "b", "a")
    refused(root, r"Did you mean 'train'\? It has: default, train;", "trian")
    refused(root, r"train\.txt names 'a' twice", "train")
    write_list(root, "train")
    refused(root, "Split 'train' of .* is empty", "train")


def test_missing_parts(root: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    missing = r"has no labelmap\.txt and no SegmentationClass and no ImageSets/Segmentation; expected labelmap\.txt"
    with pytest.raises(UserError, match=missing):
        CvatData(empty)
    with pytest.raises(UserError, match=r"nowhere does not exist"):
        CvatData(tmp_path / "nowhere")


def test_configuration(root: Path) -> None:
    config = CvatConfig.model_validate({"root": root, "train": "default", "bands": [2, 1, 0]})
    assert (config.train, config.test) == ("default", "test")
    np.testing.assert_array_equal(config.open().read("default", "a").image, PICTURE[..., ::-1])
    with pytest.raises(UserError, match=r"'cvat' has no root; set data\.root"):
        CvatConfig().open()
