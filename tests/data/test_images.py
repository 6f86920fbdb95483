import importlib
import pickle
import struct
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from faircl.data.images import RGB, ImageReading, decode_image
from faircl.data.masks import write_mask
from faircl.errors import UserError
from faircl.readers.base import FolderConfig
from faircl.readers.folder import FolderData

tifffile = pytest.importorskip("tifffile")

RANDOM = np.random.default_rng(0)
BYTES = RANDOM.integers(0, 256, (6, 5, 7), np.uint8)
WORDS = RANDOM.integers(0, 65536, (6, 5, 7), np.uint16)
PICTURE = np.ascontiguousarray(BYTES[..., :3])


def saved(path: Path, array: np.ndarray) -> Path:
    with path.open("wb") as file:
        np.save(file, array)
    return path


def tiff(path: Path, bands: np.ndarray, layout: str = "contig", **options: object) -> Path:
    """Write (H, W, C) as a TIFF: pixel by pixel ('contig'), in planes ('separate') or in pages ('pages')."""
    options = {"photometric": "minisblack", **options}
    if layout != "contig":
        bands = bands.transpose(2, 0, 1)
    if layout != "pages":
        options["planarconfig"] = layout
    tifffile.imwrite(path, np.ascontiguousarray(bands), **options)
    return path


def png16(path: Path, pixels: np.ndarray, kind: int, interlaced: int = 0, filters: bool = True) -> Path:
    """Write (H, W, C) uint16 as a PNG by hand, every row with another filter: Pillow writes no deep colours."""
    high, wide, channels = pixels.shape
    step = 2 * channels
    rows, above = b"", np.zeros(wide * step, np.int64)
    for number, row in enumerate(pixels.astype(">u2").view(np.uint8).reshape(high, -1).astype(np.int64)):
        left, corner = (np.concatenate([np.zeros(step, np.int64), line[:-step]]) for line in (row, above))
        ahead = left + above - corner
        nearest = np.argmin([abs(ahead - left), abs(ahead - above), abs(ahead - corner)], axis=0)
        paeth = np.choose(nearest, [left, above, corner])
        which = number % 5 if filters else 0
        guess = (0, left, above, (left + above) // 2, paeth)[which]
        rows, above = rows + bytes([which]) + ((row - guess) % 256).astype(np.uint8).tobytes(), row

    def chunk(tag: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))

    header = struct.pack(">IIBBBBB", wide, high, 16, kind, 0, 0, interlaced)
    packed = zlib.compress(rows)
    body = b"".join(chunk(b"IDAT", packed[place : place + 50]) for place in range(0, len(packed), 50))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b""))
    return path


def refused(path: Path, message: str, reading: ImageReading = RGB) -> None:
    with pytest.raises(UserError, match=message):
        reading.read(path)


# ---- pictures


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif", ".TIFF", ".gif", ".jpg"])
def test_plain_pictures_are_read_as_ever(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x y{suffix}"
    Image.fromarray(PICTURE).save(path)
    np.testing.assert_array_equal(RGB.read(path), decode_image(path.read_bytes(), path))
    assert RGB.read(path).flags.writeable


def test_bands_of_a_picture(tmp_path: Path) -> None:
    Image.fromarray(PICTURE).save(tmp_path / "x.png")
    got = ImageReading(bands=(2, 1, 1)).read(tmp_path / "x.png")
    np.testing.assert_array_equal(got, PICTURE[..., [2, 1, 1]])
    Image.fromarray(np.ascontiguousarray(BYTES[..., :4])).save(tmp_path / "four.png")
    got = ImageReading(bands=(3, 0, 1)).read(tmp_path / "four.png")
    np.testing.assert_array_equal(got, BYTES[..., [3, 0, 1]])
    refused(tmp_path / "x.png", r"x\.png has 3 bands, 0 to 2, but data\.bands is \[3, 0, 1\]", ImageReading((3, 0, 1)))


def test_palettes_greys_and_bits_are_colours_before_bands_are_picked(tmp_path: Path) -> None:
    palette = Image.fromarray(np.array([[0, 1]], np.uint8))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.save(tmp_path / "p.png", transparency=b"\x00\x80")
    assert ImageReading(bands=(2, 0, 0)).read(tmp_path / "p.png").tolist() == [[[30, 10, 10], [60, 40, 40]]]
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "bits.png")
    stretched = ImageReading(value_range=(0, 510))
    assert stretched.read(tmp_path / "bits.png").tolist() == [[[128] * 3, [0] * 3]]  # 127.5 rounds to even
    Image.fromarray(np.array([[[100, 255], [50, 0]]], np.uint8)).save(tmp_path / "la.png")
    assert ImageReading(value_range=(0, 100)).read(tmp_path / "la.png").tolist() == [[[255] * 3, [128] * 3]]


# ---- depth


def test_16_bits_by_hand(tmp_path: Path) -> None:
    values = np.array([[0, 255, 256], [1000, 3000, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "x.png")
    saved(tmp_path / "x.npy", values)
    tifffile.imwrite(tmp_path / "x.tif", values)
    for name in ("x.png", "x.npy", "x.tif"):
        path = tmp_path / name
        assert RGB.read(path).tolist() == [[[v] * 3 for v in row] for row in ((0, 0, 1), (3, 11, 255))]
        got = ImageReading(value_range=(1000, 3000)).read(path)
        assert got[..., 0].tolist() == [[0, 0, 0], [0, 255, 255]]
        got = ImageReading(value_range=(0, 2000)).read(path)
        assert got[..., 2].tolist() == [
            [0, 33, 33],
            [128, 255, 255],
        ]  # 255 · 255 / 2000 = 32.5, 256 · 255 / 2000 = 32.6


@pytest.mark.parametrize(("kind", "channels"), [(2, 3), (6, 4), (4, 2)])
@pytest.mark.parametrize("filters", [True, False])
def test_deep_colour_png_is_exact(tmp_path: Path, kind: int, channels: int, filters: bool) -> None:
    path = png16(tmp_path / "x.png", np.ascontiguousarray(WORDS[..., :channels]), kind, filters=filters)
    colours = WORDS[..., [0, 0, 0]] if channels == 2 else WORDS[..., :3]
    np.testing.assert_array_equal(RGB.read(path), colours >> 8)
    got = ImageReading(value_range=(1000, 1255)).read(path)  # only the low byte can tell these apart
    np.testing.assert_array_equal(got, np.clip(colours.astype(int) - 1000, 0, 255))


def test_deep_colour_png_errors(tmp_path: Path) -> None:
    reading = ImageReading(value_range=(0, 100))
    one = np.ascontiguousarray(WORDS[:1, :1, :3])  # the first pass of an interlaced PNG, and the only one it needs
    refused(png16(tmp_path / "x.png", one, 2, interlaced=1), r"x\.png is an interlaced 16-bit PNG", reading)
    path = png16(tmp_path / "y.png", np.ascontiguousarray(WORDS[..., :3]), 2)
    path.write_bytes(path.read_bytes()[:150])
    refused(path, r"Image .*y\.png cannot be decoded: it is not a complete picture", reading)


def test_floats_need_a_range(tmp_path: Path) -> None:
    values = np.array([[[0.0, 0.5, 1.0], [-1.0, np.nan, np.inf]]], np.float32)
    for path in (saved(tmp_path / "x.npy", values), tiff(tmp_path / "x.tif", values)):
        refused(path, "holds floating point numbers, whose range is unknown; set data.value_range")
        assert ImageReading(value_range=(0, 1)).read(path).tolist() == [[[0, 128, 255], [0, 0, 255]]]
    Image.fromarray(values[..., 1]).save(tmp_path / "grey.tif")
    assert ImageReading(value_range=(0, 0.5)).read(tmp_path / "grey.tif").tolist() == [[[255] * 3, [0] * 3]]


def test_integers_beyond_16_bits(tmp_path: Path) -> None:
    for path in (saved(tmp_path / "x.npy", np.array([[-5, 70000]])), saved(tmp_path / "y.npy", np.array([[-5, 0]]))):
        refused(path, r"holds values from -5 to (70000|0); set data\.value_range")
        assert ImageReading(value_range=(-5, 0)).read(path)[0, 0].tolist() == [0] * 3


# ---- arrays


def test_arrays(tmp_path: Path) -> None:
    np.testing.assert_array_equal(RGB.read(saved(tmp_path / "a.NPY", BYTES)), BYTES[..., :3])
    got = RGB.read(saved(tmp_path / "b.npy", BYTES[..., 4]))
    np.testing.assert_array_equal(got, BYTES[..., [4, 4, 4]])
    np.testing.assert_array_equal(RGB.read(saved(tmp_path / "c.npy", WORDS.astype(">u2"))), WORDS[..., :3] >> 8)
    got = ImageReading(bands=(6, 3, 1)).read(saved(tmp_path / "d.npy", np.asfortranarray(WORDS)))
    np.testing.assert_array_equal(got, WORDS[..., [6, 3, 1]] >> 8)


def test_array_errors(tmp_path: Path) -> None:
    refused(saved(tmp_path / "x.npy", BYTES[..., :2]), r"x\.npy has 2 bands; set data\.bands")
    refused(saved(tmp_path / "x.npy", BYTES[..., 0]), r"has one band, 0, but data\.bands is", ImageReading((0, 0, 1)))
    refused(saved(tmp_path / "x.npy", BYTES), "choose among those it has", ImageReading((0, -1, 1)))
    refused(saved(tmp_path / "x.npy", BYTES[None]), r"has shape \(1, 6, 5, 7\); expected \(height, width\)")
    refused(saved(tmp_path / "x.npy", BYTES[:0]), r"has shape \(0, 5, 7\)")
    for strange in (np.zeros((2, 2), complex), np.zeros((2, 2), bool), np.zeros((2, 2), np.int8)):
        refused(saved(tmp_path / "x.npy", strange), f"holds {strange.dtype} values; save it as uint8")
    np.save(tmp_path / "x.npy", np.array([{"a": 1}]), allow_pickle=True)
    refused(tmp_path / "x.npy", "not a complete array of numbers; save it again with numpy.save")
    whole = saved(tmp_path / "x.npy", BYTES).read_bytes()
    for part, found in ((b"", "an empty file"), (whole[:20], "not a complete"), (whole[:-1], "not a complete")):
        (tmp_path / "x.npy").write_bytes(part)
        refused(tmp_path / "x.npy", rf"Image .*x\.npy cannot be decoded: it is {found}")
    refused(tmp_path / "none.npy", r"Cannot read image .*none\.npy: No such file")


# ---- TIFFs of many bands


@pytest.mark.parametrize("layout", ["contig", "separate", "pages"])
@pytest.mark.parametrize("count", [3, 4, 5, 7])
@pytest.mark.parametrize("numbers", [BYTES, WORDS, WORDS.astype(np.float32)], ids=["uint8", "uint16", "float32"])
@pytest.mark.parametrize("photometric", ["minisblack", "rgb"])
def test_tiff_bands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, layout: str, count: int, numbers: np.ndarray, photometric: str
) -> None:
    bands = numbers[..., :count]
    if layout == "pages":
        photometric = "minisblack"
    path = tiff(tmp_path / "x.tif", bands, layout, photometric=photometric)
    exact = bands[..., [count - 1, 0, 1]].astype(int)
    got = ImageReading((count - 1, 0, 1), (100, 355)).read(path)
    np.testing.assert_array_equal(got, np.clip(exact - 100, 0, 255))
    if numbers.dtype != np.float32:
        plain = bands if numbers.dtype == np.uint8 else bands >> 8
        np.testing.assert_array_equal(RGB.read(path), plain[..., :3])
        np.testing.assert_array_equal(ImageReading((count - 1, 0, 1)).read(path), plain[..., [count - 1, 0, 1]])
    assert not caplog.records  # Pillow's complaint of more than six bands is for nobody


def test_compressed_tiff_and_previews(tmp_path: Path) -> None:
    path = tiff(tmp_path / "x.tif", WORDS, compression="zlib", photometric="minisblack", byteorder=">", bigtiff=True)
    np.testing.assert_array_equal(RGB.read(path), WORDS[..., :3] >> 8)
    with tifffile.TiffWriter(tmp_path / "y.tif") as file:  # a second page of another size is no band
        file.write(PICTURE, photometric="rgb")
        file.write(PICTURE[::2, ::2], photometric="rgb", subfiletype=1)
    np.testing.assert_array_equal(RGB.read(tmp_path / "y.tif"), PICTURE)


def test_tiff_errors(tmp_path: Path) -> None:
    refused(tiff(tmp_path / "two.tif", BYTES[..., :2]), r"two\.tif has 2 bands; set data\.bands")
    refused(tiff(tmp_path / "x.tif", WORDS), r"x\.tif has 7 bands, 0 to 6, but data\.bands", ImageReading((0, 1, 7)))
    whole = tiff(tmp_path / "x.tif", WORDS).read_bytes()
    for keep in (4, 8, 100, len(whole) - 1):
        (tmp_path / "x.tif").write_bytes(whole[:keep])
        refused(tmp_path / "x.tif", r"Image .*x\.tif cannot be decoded: it is not a complete picture")
    (tmp_path / "x.tif").write_bytes(b"")
    refused(tmp_path / "x.tif", "it is an empty file")
    tifffile.imwrite(tmp_path / "x.tif", np.zeros((2, 3, 4, 5), np.uint8), photometric="minisblack")
    refused(tmp_path / "x.tif", r"has shape \(2, 3, 4, 5\), axes .*; expected height, width and at most one axis")


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    real = importlib.import_module

    def load(name: str, package: str | None = None) -> ModuleType:
        if name in missing:
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr("faircl.data.multiband_images.import_module", load)


def test_without_tifffile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiff(tmp_path / "x.tif", WORDS)
    plain = tiff(tmp_path / "plain.tif", PICTURE, photometric="rgb")
    extra = tiff(tmp_path / "extra.tif", BYTES[..., :5], photometric="rgb")
    without(monkeypatch, "tifffile")
    refused(path, r"x\.tif is a TIFF that Pillow cannot read.*pip install 'faircl\[tiff\]'")
    for reading in (RGB, ImageReading(bands=(0, 1, 2)), ImageReading(value_range=(0, 255))):
        np.testing.assert_array_equal(reading.read(plain), PICTURE)
    np.testing.assert_array_equal(RGB.read(extra), PICTURE)


def test_compression_that_tifffile_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiff(tmp_path / "x.tif", WORDS)

    def lacking(*_: object) -> None:
        raise ValueError("<COMPRESSION.LZW: 5> requires the 'imagecodecs' package")

    monkeypatch.setattr(tifffile, "TiffFile", lacking)
    refused(path, r"x\.tif is compressed in a way that tifffile reads with imagecodecs only; pip install imagecodecs")


# ---- configuration


def test_configuration(tmp_path: Path) -> None:
    assert FolderConfig(root=tmp_path).image_reading() == RGB
    config = FolderConfig.model_validate({"root": tmp_path, "bands": [3, 2, 1], "value_range": [0, 3000]})
    assert config.image_reading() == ImageReading((3, 2, 1), (0.0, 3000.0))
    assert pickle.loads(pickle.dumps(config.image_reading())) == config.image_reading()
    for wrong in ({"bands": [0, 1]}, {"bands": [0, 1, -1]}, {"value_range": [5, 5]}, {"value_range": [1]}):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            FolderConfig.model_validate({"root": tmp_path, **wrong})


def test_folder_of_arrays(tmp_path: Path) -> None:
    for folder in ("images/train", "masks/train"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "classes.txt").write_text("a\nb\n")
    saved(tmp_path / "images/train/x.npy", WORDS)
    write_mask(tmp_path / "masks/train/x.png", np.zeros((6, 5), np.uint8))
    data = FolderData(tmp_path, images=ImageReading(bands=(5, 5, 0)))
    np.testing.assert_array_equal(data.read("train", "x").image, WORDS[..., [5, 5, 0]] >> 8)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "LA", "RGBA", "CMYK", "1"])
def test_pictures_are_converted_in_bands(mode, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (11, 6, 3), dtype=np.uint8)).convert(mode)
    path = tmp_path / ("x.tif" if mode == "CMYK" else "x.png")
    picture.save(path)
    whole = RGB.read(path)
    monkeypatch.setattr("faircl.data.images._BAND", 13)  # two rows at a time
    assert np.array_equal(RGB.read(path), whole)
    assert np.array_equal(whole, np.asarray(Image.open(path).convert("RGB")))
