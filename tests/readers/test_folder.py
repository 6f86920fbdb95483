import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircl.data.images import decode_image
from faircl.data.masks import write_mask
from faircl.data.raster_files import file_bytes
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.readers.folder import FolderData, read_classes

MASK = np.array([[0, 1, 2], [255, 2, 1]], np.uint8)
PICTURE = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10


def read_image(path: Path) -> np.ndarray:
    return decode_image(file_bytes(path, "image"), path)


def add(root: Path, id: str, mask: np.ndarray = MASK, suffix: str = ".png", split: str = "train") -> None:
    image_path, mask_path = root / "images" / split / (id + suffix), root / "masks" / split / f"{id}.png"
    image_path.parent.mkdir(parents=True, exist_ok=True)
    mask_path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(PICTURE).save(image_path)
    write_mask(mask_path, mask)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "classes.txt").write_text("background\ncat\ndog\n")
    add(tmp_path, "b")
    add(tmp_path, "a")
    return tmp_path


def refused(root: Path, message: str, split: str = "train") -> None:
    with pytest.raises(UserError, match=message):
        FolderData(root).ids(split)


# ---- reading


def test_ids_and_sample(root: Path) -> None:
    data: SegmentationData = FolderData(str(root))
    assert data.ids("train") == ("a", "b")
    sample = data.read("train", "a")
    assert sample.id == "a"
    np.testing.assert_array_equal(sample.image, PICTURE)
    np.testing.assert_array_equal(sample.mask, MASK)
    np.testing.assert_array_equal(data.read_mask("train", "b"), MASK)
    assert sample.image.flags.writeable


def test_subfolders_dots_suffixes_and_hidden_files(root: Path) -> None:
    add(root, "city/x.y", suffix=".JPG")
    add(root, "Z", suffix=".webp")
    images, masks = root / "images" / "train", root / "masks" / "train"
    os.rename(masks / "Z.png", masks / "Z.PNG")
    for name in (".DS_Store", "Thumbs.db", "._a.png", "notes.txt"):
        (images / name).write_bytes(b"x")
    (masks / "._a.png").write_bytes(b"x")
    (images / ".cache").mkdir()
    (images / ".cache" / "c.png").write_bytes(b"x")
    data = FolderData(root)
    assert data.ids("train") == ("Z", "a", "b", "city/x.y")
    assert [data.read("train", id).mask.shape for id in data.ids("train")] == [(2, 3)] * 4


def test_linked_split(root: Path) -> None:
    for kind in ("images", "masks"):
        (root / kind / "val").symlink_to(root / kind / "train", target_is_directory=True)
    assert FolderData(root).ids("val") == ("a", "b")


def test_splits_have_both_folders(root: Path) -> None:
    add(root, "c", split="val")
    (root / "images" / "test").mkdir()
    (root / "images" / ".hidden").mkdir()
    assert FolderData(root).splits() == ("train", "val")


def test_constructor_lists_nothing_and_listing_is_cached(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda *args, **kw: calls.append(str(args[0])) or walk(*args, **kw))
    data = FolderData(root)
    assert calls == []
    data.ids("train")
    data.ids("train")
    data.read("train", "a")
    assert len(calls) == 2


def test_pickle_keeps_the_listing(root: Path) -> None:
    data = FolderData(root)
    data.ids("train")
    copy = pickle.loads(pickle.dumps(data))
    (root / "images" / "train" / "b.png").unlink()  # a fresh listing would now fail
    assert copy.ids("train") == ("a", "b")
    np.testing.assert_array_equal(copy.read("train", "a").mask, MASK)


def test_many_classes_give_uint16(root: Path) -> None:
    (root / "classes.txt").write_text("\n".join(f"c{n}" for n in range(300)))
    add(root, "deep", np.array([[0, 299, 65535], [1, 255, 2]], np.uint16))
    data = FolderData(root)
    assert data.read("train", "deep").mask.tolist() == [[0, 299, 65535], [1, 255, 2]]
    assert data.read_mask("train", "a").tolist() == [[0, 1, 2], [65535, 2, 1]]
    assert data.read_mask("train", "a").dtype == np.uint16


def test_rgb_masks(root: Path) -> None:
    (root / "classes.txt").write_text("background 0 0 0\nred car 128 0 0\n")
    rgb = np.array([[[0, 0, 0], [128, 0, 0], [0, 0, 0]], [[7, 7, 7], [0, 0, 0], [128, 0, 0]]], np.uint8)
    Image.fromarray(rgb).save(root / "masks" / "train" / "a.png")
    data = FolderData(root, ignore_colour=(7, 7, 7))
    assert data.classes.names == ("background", "red car")
    assert data.read("train", "a").mask.tolist() == [[0, 1, 0], [255, 0, 1]]
    with pytest.raises(UserError, match=r"a\.png has colour \(7, 7, 7\) in 1 pixels.*in classes\.txt"):
        FolderData(root).read("train", "a")


# ---- classes.txt


@pytest.mark.parametrize(
    ("first", "setting", "expected"),
    [
        ("background", "auto", True),
        ("BackGround", "auto", True),
        ("road", "auto", False),
        ("background", "none", False),
        ("road", "first", True),
    ],
)
def test_background(root: Path, first: str, setting: str, expected: bool) -> None:
    (root / "classes.txt").write_text(f"{first}\ncat\n")
    classes = FolderData(root, background=setting).classes
    assert classes.background is expected
    assert classes.foreground == ((1,) if expected else (0, 1))


def test_classes_file(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(
        "\ufeff# ids in order\r\nroad 1 2 3\r\n  # more\r\ntraffic light\r\nlevel 1 2\r\n\r\n \r\n".encode()
    )
    assert read_classes(path) == (("road", "traffic light", "level 1 2"), {(1, 2, 3): 0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "classes.txt names no class"),
        ("\n# nothing\n\n", "classes.txt names no class"),
        ("a\n\nb\n", "empty line where the name of id 1 is expected"),
        ("a\nb\na 1 2 3\n", "names 'a' twice, as ids 0 and 2"),
        ("a 1 2 3\nb 1 2 3\n", r"gives colour \(1, 2, 3\) to 'a' and to 'b'"),
        ("a 1 2 300\n", r"gives 'a' the colour \(1, 2, 300\); red, green and blue go from 0 to 255"),
    ],
)
def test_classes_file_errors(root: Path, text: str, message: str) -> None:
    (root / "classes.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        FolderData(root)


def test_classes_file_unreadable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "classes.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(UserError, match=r"Cannot read .*classes\.txt: it is not UTF-8 text"):
        FolderData(root)

    def forbid(self: Path, encoding: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", forbid)
    with pytest.raises(UserError, match=r"Cannot read .*classes\.txt: Permission denied"):
        FolderData(root)


# ---- layout errors


def test_unknown_background_setting(root: Path) -> None:
    with pytest.raises(UserError, match=r"Unknown background setting 'frist'. Did you mean 'first'\?"):
        FolderData(root, background="frist")


def test_missing_root(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"Data folder .*nowhere does not exist or may not be entered; expected classes\.txt"
    ):
        FolderData(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is not a folder"):
        FolderData(tmp_path / "file")


def test_missing_parts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no classes\.txt and no images and no masks; expected"):
        FolderData(tmp_path)
    (tmp_path / "classes.txt").write_text("a")
    (tmp_path / "images").mkdir()
    with pytest.raises(UserError, match=r"has no masks; expected"):
        FolderData(tmp_path)


def test_unknown_split(root: Path) -> None:
    add(root, "c", split="val")
    refused(root, r"has no split 'trian'\. Did you mean 'train'\? It has: train, val\.", "trian")
    refused(root, r"has no split '\.\./train'", "../train")
    (root / "images" / "test").mkdir()
    refused(root, r"Split 'test' has .*images.test but no .*masks.test; a split needs both", "test")
    add(root, "d", split="extra")
    shutil.rmtree(root / "images" / "extra")
    data = FolderData(root)
    assert data.ids("extra") == ("d",)  # masks are enough, until images are wanted
    with pytest.raises(UserError, match=r"Split 'extra' has .*masks.extra but no .*images.extra; a split needs both"):
        data.check_images("extra")
    (root / "images" / "extra").mkdir()
    with pytest.raises(UserError, match=r"Split 'extra' has masks but no image: .*extra holds none \(\.bmp"):
        FolderData(root).check_images("extra")


def test_flat_folder_has_no_split(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("a")
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "a.png").write_bytes(b"x")
    refused(tmp_path, "has no split 'train'. It has none: make images/train and masks/train")


def test_empty_split(root: Path) -> None:
    for kind in ("images", "masks"):
        (root / kind / "val").mkdir()
    refused(root, r"Split 'val' of .* is empty; expected at least one mask", "val")


def test_image_without_mask(root: Path) -> None:
    (root / "masks" / "train" / "b.png").unlink()
    refused(root, r"has 1 image with no mask: images/train/b\.png; expected .*masks.train.b\.png")
    for id in "cdef":
        add(root, id)
        (root / "masks" / "train" / f"{id}.png").unlink()
    refused(root, r"has 5 images with no mask: images/train/b\.png, images/train/c\.png, images/train/d\.png, \.\.\.;")


def test_mask_without_image(root: Path) -> None:
    (root / "images" / "train" / "b.png").unlink()
    refused(root, r"has 1 mask with no image: masks/train/b\.png; expected .*images.train.b\.jpg")


def test_two_images_of_one_id(root: Path) -> None:
    Image.fromarray(PICTURE).save(root / "images" / "train" / "a.jpg")
    refused(root, r"images.train holds both a\.jpg and a\.png, which have the same id 'a'; remove one")


def test_unlistable_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = FolderData(root)

    def forbid(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", forbid)
    with pytest.raises(UserError, match=r"Cannot list folder .*masks: Permission denied; check its permissions"):
        data.splits()
    monkeypatch.setattr(FolderData, "splits", lambda self: ("train",))
    with pytest.raises(UserError, match=r"Cannot list folder .*train: Permission denied"):
        data.ids("train")


# ---- sample errors


def test_unknown_id(root: Path) -> None:
    with pytest.raises(UserError, match=r"No image 'a\.png' in split 'train' of .*; ids are paths without extension"):
        FolderData(root).read("train", "a.png")


def test_sizes_that_differ(root: Path) -> None:
    add(root, "a", MASK[:, :2])
    with pytest.raises(UserError, match=r"masks.*a\.png is 2x2 pixels, but its image .*images.*a\.png is 3x2"):
        FolderData(root).read("train", "a")


def test_value_beyond_classes(root: Path) -> None:
    add(root, "a", np.array([[0, 7, 7], [255, 2, 9]], np.uint8))
    message = (
        r"a\.png holds value 7 in 2 pixels \(and 1 more.*but classes\.txt has 3 classes, ids 0 to 2.*255 for ignored"
    )
    data = FolderData(root)
    for read in (data.read, data.read_mask):
        with pytest.raises(UserError, match=message):
            read("train", "a")


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".tif", ".webp", ".gif"])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.8])
def test_truncated_image(tmp_path: Path, suffix: str, keep: float) -> None:
    path = tmp_path / f"x{suffix}"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 48, 3), np.uint8)).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(UserError, match=rf"Image .*x\{suffix} cannot be decoded: it is (an empty|not a complete)"):
        read_image(path)


def test_unreadable_mask_and_image_vanished(root: Path) -> None:
    data = FolderData(root)
    data.ids("train")
    (root / "masks" / "train" / "a.png").write_bytes(b"x")
    (root / "images" / "train" / "b.png").unlink()
    with pytest.raises(UserError, match=r"Mask .*a\.png cannot be decoded"):
        data.read("train", "a")
    with pytest.raises(UserError, match=r"Cannot read image .*b\.png: No such file"):
        data.read("train", "b")


def test_fifo_does_not_block(root: Path) -> None:
    path = root / "images" / "train" / "a.png"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match=r"Image .*a\.png is not a regular file"):
        FolderData(root).read("train", "a")


# ---- picture formats


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif", ".tiff"])
def test_lossless_formats(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(PICTURE).save(tmp_path / f"x{suffix}")
    np.testing.assert_array_equal(read_image(tmp_path / f"x{suffix}"), PICTURE)


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".webp", ".gif"])
def test_lossy_formats(tmp_path: Path, suffix: str) -> None:
    Image.new("RGB", (5, 4), (200, 30, 90)).save(tmp_path / f"x{suffix}")
    image = read_image(tmp_path / f"x{suffix}")
    assert image.shape == (4, 5, 3)
    assert np.abs(image.astype(int) - (200, 30, 90)).max() < 12


def test_modes_become_rgb(tmp_path: Path) -> None:
    gray = PICTURE[..., 0]
    clear = Image.fromarray(PICTURE).convert("RGBA")
    clear.putalpha(Image.fromarray(gray))
    palette = Image.fromarray(gray // 60)
    palette.putpalette(bytes(range(12)))
    modes = {
        "gray": (Image.fromarray(gray), {}, np.stack([gray] * 3, -1)),
        "bits": (Image.fromarray(gray > 50), {}, np.stack([(gray > 50) * np.uint8(255)] * 3, -1)),
        "alpha": (clear, {}, PICTURE),
        "palette": (palette, {}, (gray // 60)[..., None] * 3 + np.arange(3, dtype=np.uint8)),
        "see-through": (palette, {"transparency": b"\x00\x80"}, (gray // 60)[..., None] * 3 + np.arange(3)),
        "deep": (Image.fromarray(gray.astype(np.uint16) * 257), {}, np.stack([gray] * 3, -1)),
    }
    for name, (image, options, expected) in modes.items():
        image.save(tmp_path / f"{name}.png", **options)
        got = read_image(tmp_path / f"{name}.png")
        assert got.dtype == np.uint8, name
        np.testing.assert_array_equal(got, expected, err_msg=name)


def test_jpeg_is_not_rotated(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(PICTURE).save(tmp_path / "x.jpg", exif=exif)
    assert read_image(tmp_path / "x.jpg").shape == (2, 3, 3)


def test_numbers_without_a_known_range(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(UserError, match=r"x\.tif holds floating point"):
        read_image(tmp_path / "x.tif")
    Image.fromarray(np.array([[0, 70000]], np.int32)).save(tmp_path / "x.tif")
    with pytest.raises(UserError, match=r"x\.tif holds values from 0 to 70000"):
        read_image(tmp_path / "x.tif")
