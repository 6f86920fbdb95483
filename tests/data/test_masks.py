import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image

from faircl.data.masks import (
    IGNORE_COLOUR,
    MAX_UINT8_CLASSES,
    ColourTable,
    colour_mask,
    decode_mask,
    fit_mask,
    voc_palette,
    write_mask,
)
from faircl.data.raster_files import open_raster
from faircl.errors import UserError

IDS = np.array([[0, 1, 2], [255, 2, 1]], np.uint8)
COLOURS = {(0, 0, 0): 0, (128, 0, 0): 1, (0, 128, 0): 2}
RGB = np.array([[[0, 0, 0], [128, 0, 0], [0, 128, 0]], [[224, 224, 192], [0, 128, 0], [128, 0, 0]]], np.uint8)
TABLE = ColourTable(COLOURS, ignore_colour=IGNORE_COLOUR)


def read_mask(path: Path, classes: int, colours: ColourTable | None = None) -> np.ndarray:
    return fit_mask(decode_mask(path, colours), classes)


def save(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)
    return path


def gray_png(path: Path, ids: list[list[int]], depth: int) -> Path:
    """Gray PNG of any depth, written by hand: Pillow stretches 2 and 4 bits."""

    def chunk(tag: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))

    rows = b""
    for row in ids:
        bits = "".join(f"{value:0{depth}b}" for value in row)
        bits += "0" * (-len(bits) % 8)
        rows += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big")
    header = struct.pack(">IIBBBBB", len(ids[0]), len(ids), depth, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


# ---- codings


def test_index_png(tmp_path: Path) -> None:
    mask = read_mask(save(tmp_path / "m.png", Image.fromarray(IDS)), 3)
    assert mask.dtype == np.uint8
    assert mask.flags.writeable  # torch.from_numpy wants it so
    np.testing.assert_array_equal(mask, IDS)


def test_palette_png_gives_indices_not_colours(tmp_path: Path) -> None:
    image = Image.fromarray(IDS)
    image.putpalette(np.full((256, 3), 7, np.uint8).tobytes())
    np.testing.assert_array_equal(read_mask(save(tmp_path / "m.png", image), 3, TABLE), IDS)


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_gray_png_of_every_depth_gives_stored_numbers(tmp_path: Path, depth: int) -> None:
    top = min(2**depth - 1, 200)
    ids = [[0, 1, top], [top, 0, 1]]
    mask = read_mask(gray_png(tmp_path / "m.png", ids, depth), 201)
    assert mask.dtype == np.uint8
    assert mask.tolist() == ids


def test_one_bit_tiff(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[True, False]]))
    assert decode_mask(save(tmp_path / "m.tif", image)).tolist() == [[1, 0]]


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_rgb_png(tmp_path: Path, mode: str) -> None:
    path = save(tmp_path / "m.png", Image.fromarray(RGB).convert(mode))
    np.testing.assert_array_equal(read_mask(path, 3, TABLE), IDS)


def test_gray_with_opaque_alpha(tmp_path: Path) -> None:
    path = save(tmp_path / "m.png", Image.fromarray(IDS).convert("LA"))
    np.testing.assert_array_equal(read_mask(path, 3), IDS)


@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
def test_16_and_32_bit_tiff(tmp_path: Path, dtype: type) -> None:
    mask = decode_mask(save(tmp_path / "m.tif", Image.fromarray(np.array([[0, 300, 65535]], dtype))))
    assert mask.dtype == np.uint16
    assert mask.tolist() == [[0, 300, 65535]]


def test_rgb_decoding_equals_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    palette = np.unique(rng.integers(0, 256, (40, 3), dtype=np.uint8), axis=0)
    rng.shuffle(palette)
    colours = {(int(r), int(g), int(b)): id for id, (r, g, b) in enumerate(palette)}
    rgb = palette[rng.integers(0, len(palette), (13, 17))]
    expected = [[colours[int(p[0]), int(p[1]), int(p[2])] for p in row] for row in rgb]
    assert ColourTable(colours).decode(rgb).tolist() == expected


def test_many_colours_give_uint16() -> None:
    colours = {(id // 256, id % 256, 9): id for id in range(300)}
    mask = ColourTable(colours, ignore_colour=(1, 1, 1)).decode(np.array([[[1, 43, 9], [1, 1, 1]]], np.uint8))
    assert mask.dtype == np.uint16
    assert mask.tolist() == [[299, 65535]]


def test_colour_table_is_picklable() -> None:
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(TABLE)).decode(RGB), IDS)


# ---- depth and ignore value


@pytest.mark.parametrize(
    ("dtype", "classes", "stored", "expected", "expected_dtype"),
    [
        (np.uint8, 3, [0, 2, 255], [0, 2, 255], np.uint8),
        (np.uint16, 3, [0, 2, 255, 65535], [0, 2, 255, 255], np.uint8),
        (np.uint16, MAX_UINT8_CLASSES, [253, 255], [253, 255], np.uint8),
        (np.uint16, 255, [254, 65535], [254, 65535], np.uint16),
        (np.uint16, 300, [255, 299, 65535], [255, 299, 65535], np.uint16),
        (np.uint8, 300, [0, 254, 255], [0, 254, 65535], np.uint16),
    ],
)
def test_depth_follows_the_number_of_classes(dtype, classes, stored, expected, expected_dtype) -> None:
    mask = fit_mask(np.array([stored], dtype), classes)
    assert mask.dtype == expected_dtype
    assert mask.tolist() == [expected]


@settings(max_examples=60, deadline=None)
@given(
    arrays(st.sampled_from([np.uint8, np.uint16]), array_shapes(min_dims=2, max_dims=2, max_side=4)),
    st.integers(1, 400),
)
def test_fit_agrees_with_a_plain_loop(mask: np.ndarray, classes: int) -> None:
    ignored = {255 if mask.dtype == np.uint8 else 65535} | ({255} if classes <= MAX_UINT8_CLASSES else set())
    out_ignore = 255 if classes <= MAX_UINT8_CLASSES else 65535
    if any(v >= classes and v not in ignored for v in mask.ravel().tolist()):
        with pytest.raises(UserError, match=f"{classes} classes"):
            fit_mask(mask, classes)
    else:
        assert fit_mask(mask, classes).tolist() == [
            [out_ignore if v in ignored else v for v in r] for r in mask.tolist()
        ]


# ---- writing and painting


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mask=arrays(st.sampled_from([np.uint8, np.uint16]), array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_write_then_decode_is_identity(tmp_path: Path, mask: np.ndarray) -> None:
    write_mask(tmp_path / "m.png", mask)
    back = decode_mask(tmp_path / "m.png")
    assert back.dtype == mask.dtype
    np.testing.assert_array_equal(back, mask)


def test_written_file_shows_the_palette(tmp_path: Path) -> None:
    write_mask(tmp_path / "m.png", IDS)
    np.testing.assert_array_equal(np.array(Image.open(tmp_path / "m.png").convert("RGB")), RGB)
    palette = np.array([[9, 9, 9], [1, 2, 3]], np.uint8)
    write_mask(tmp_path / "n.png", IDS, palette)
    shown = np.array(Image.open(tmp_path / "n.png").convert("RGB"))
    assert shown[0].tolist() == [[9, 9, 9], [1, 2, 3], [0, 128, 0]]


def test_voc_palette_against_the_published_colours() -> None:
    published = {0: (0, 0, 0), 1: (128, 0, 0), 7: (128, 128, 128), 8: (64, 0, 0), 15: (192, 128, 128), 20: (0, 64, 128)}
    palette = voc_palette(256)
    assert {id: tuple(palette[id].tolist()) for id in published} == published
    assert tuple(palette[255].tolist()) == IGNORE_COLOUR
    assert len(np.unique(voc_palette(65536), axis=0)) == 65536


def test_colour_mask() -> None:
    np.testing.assert_array_equal(colour_mask(IDS), RGB)
    deep = np.array([[1, 300, 65535]], np.uint16)
    painted = colour_mask(deep, np.array([[0, 0, 0], [5, 6, 7]], np.uint8))
    assert painted.shape == (1, 3, 3)
    assert painted.dtype == np.uint8
    assert painted[0].tolist() == [[5, 6, 7], voc_palette(301)[300].tolist(), list(IGNORE_COLOUR)]


# ---- errors


def test_unknown_colour_names_colour_position_and_count(tmp_path: Path) -> None:
    rgb = RGB.copy()
    rgb[0, 2] = rgb[1, 1] = (9, 8, 7)
    path = save(tmp_path / "m.png", Image.fromarray(rgb))
    with pytest.raises(
        UserError, match=r"m\.png has colour \(9, 8, 7\) in 2 pixels, the first at row 0, column 2, but"
    ):
        decode_mask(path, TABLE)
    rgb[1, 2] = (1, 1, 1)
    with pytest.raises(UserError, match=r"and 1 more unknown colours: was it resized"):
        TABLE.decode(rgb)


def test_void_colour_of_a_class() -> None:
    with pytest.raises(UserError, match=r"\(128, 0, 0\) is given both to class 1 and to ignored pixels"):
        ColourTable(COLOURS, ignore_colour=(128, 0, 0))


def test_rgb_without_colours(tmp_path: Path) -> None:
    path = save(tmp_path / "m.png", Image.fromarray(RGB))
    with pytest.raises(UserError, match=r"m\.png is an RGB picture, but no class has a colour in the class list"):
        decode_mask(path)


def test_empty_colour_table() -> None:
    with pytest.raises(UserError, match="no class has one"):
        ColourTable({}).decode(RGB)


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparent_pixels(tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(RGB).convert(mode)
    image.putalpha(Image.fromarray(np.array([[255, 255, 0], [255, 255, 255]], np.uint8)))
    with pytest.raises(UserError, match=r"m\.png has transparent pixels"):
        decode_mask(save(tmp_path / "m.png", image), TABLE)


def test_value_beyond_the_classes() -> None:
    with pytest.raises(
        UserError, match=r"a\.png holds value 2 in 2 pixels, but the class list has 2 classes, ids 0 to 1"
    ):
        fit_mask(IDS, 2, "a.png")
    with pytest.raises(
        UserError, match=r"value 1 in 2 pixels \(and 1 more such values\).*write 255 for ignored pixels"
    ):
        fit_mask(IDS, 1)
    with pytest.raises(UserError, match=r"value 300 in 1 pixels.*write 65535 for ignored pixels"):
        fit_mask(np.array([[300]], np.uint16), 300)


def test_jpeg_mask(tmp_path: Path) -> None:
    path = save(tmp_path / "m.png", Image.fromarray(IDS), format="JPEG")
    with pytest.raises(UserError, match=r"m\.png is a JPEG file.*save masks as PNG"):
        decode_mask(path)


def test_values_outside_16_bit(tmp_path: Path) -> None:
    path = save(tmp_path / "m.tif", Image.fromarray(np.array([[-1, 70000]], np.int32)))
    with pytest.raises(UserError, match=r"m\.tif holds values from -1 to 70000"):
        decode_mask(path)


def test_unsupported_mode(tmp_path: Path) -> None:
    path = save(tmp_path / "m.tif", Image.fromarray(np.zeros((2, 2), np.float32)))
    with pytest.raises(UserError, match=r"m\.tif has Pillow mode F"):
        decode_mask(path)


@pytest.mark.parametrize("keep", [0, 4, 40, 60])
def test_truncated_or_empty_file(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "m.png"
    write_mask(path, np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        UserError, match=r"Mask .*m\.png cannot be decoded: it is (an empty file|not a complete picture)"
    ):
        decode_mask(path)


def test_every_truncation_and_flipped_byte_is_an_answer_or_a_user_error(tmp_path: Path) -> None:
    path = tmp_path / "m.png"
    Image.fromarray(IDS).save(path)
    good = path.read_bytes()
    broken = [good[:n] for n in range(len(good))]
    broken += [good[:n] + bytes([good[n] ^ 0xFF]) + good[n + 1 :] for n in range(len(good))]
    refused = 0
    for data in broken:
        path.write_bytes(data)
        try:
            decode_mask(path)
        except UserError:
            refused += 1
    assert refused > len(good)


def test_not_a_picture(tmp_path: Path) -> None:
    (tmp_path / "m.png").write_text("hello")
    with pytest.raises(UserError, match=r"m\.png cannot be decoded: it is not a complete picture"):
        decode_mask(tmp_path / "m.png")


def test_too_large_for_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "m.png", Image.fromarray(IDS))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    with pytest.raises(UserError, match=r"m\.png cannot be decoded: it is too large for Pillow"):
        decode_mask(path)


def test_missing_folder_and_forbidden_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"Cannot read mask .*no\.png: No such file.*check that it exists"):
        decode_mask(tmp_path / "no.png")
    (tmp_path / "d.png").mkdir()
    with pytest.raises(UserError, match=r"Mask .*d\.png is not a regular file"):
        decode_mask(tmp_path / "d.png")

    def forbid(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        "faircl.data.raster_files._open_nonblocking", forbid
    )  # chmod does not stop root, as which tests may run
    with pytest.raises(UserError, match=r"Cannot read mask .*no\.png: Permission denied; check its permissions"):
        decode_mask(tmp_path / "no.png")


def test_write_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Cannot write mask .*m\.png: No such file"):
        write_mask(tmp_path / "missing" / "m.png", IDS)
    with pytest.raises(ValueError, match="int64"):
        write_mask(tmp_path / "m.png", IDS.astype(np.int64))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["tif", "png"])
def test_no_picture_is_rotated(tmp_path: Path, orientation: int, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / f"m.{suffix}", Image.fromarray(IDS), exif=exif)
    np.testing.assert_array_equal(np.array(open_raster(path, "image")), IDS)
