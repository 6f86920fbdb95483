"""Uploaded files: what is read, what is refused, and that nothing large is decoded before it is refused."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from image_files import encoded, picture, png_bomb
from PIL import Image

from faircl.data.images import RGB, ImageReading
from faircl.errors import UserError
from faircl.serving.limits import Limits, Refused, size_in_words
from faircl.serving.uploads import TYPES, decode_upload, is_turned

LIMITS = Limits(max_pixels=1_000_000)


def refused(data: bytes, reading: ImageReading = RGB, limits: Limits = LIMITS) -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        decode_upload(data, "a.png", reading, limits)
    return caught.value.status, str(caught.value)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_is_read(kind):
    options = {"lossless": True} if kind == "WebP" else {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    pixels = decode_upload(encoded(picture(), kind, **options), "a", RGB, LIMITS)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - picture()).max() <= (4 if kind == "JPEG" else 0)


@pytest.mark.parametrize("data", [encoded(picture(), "GIF"), b"%PDF-1.7", b"\0" * 100, b"<svg/>"])
def test_other_types_are_refused(data):
    status, said = refused(data)
    assert status == 415
    assert said == (
        "File a.png is not an image of a known type; expected JPEG, PNG, WebP, BMP or TIFF: convert it to one of these."
    )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_truncated_files_are_refused(kind, share):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    data = encoded(noise, kind)
    status, said = refused(data[: int(share * len(data))])
    assert status == 422
    assert "not a complete picture" in said


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TYPES)
def test_a_damaged_file_is_read_or_refused_and_nothing_else_happens(kind):
    chance = np.random.default_rng(0)
    whole = encoded(chance.integers(0, 256, (40, 40, 3), np.uint8), kind)
    outcomes = set()
    for number in range(60):
        data = bytearray(whole)
        for place in chance.integers(0, min(len(data), 300), 3).tolist():
            data[place] = int(chance.integers(0, 256))
        try:
            reading = ImageReading(value_range=(0, 255)) if number % 2 else RGB
            outcomes.add(decode_upload(bytes(data), "a", reading, LIMITS).ndim)
        except Refused as refusal:
            outcomes.add(refusal.status)
    assert outcomes & {413, 415, 422}
    assert outcomes <= {3, 413, 415, 422}


def test_an_empty_file_is_refused():
    assert refused(b"") == (422, "Image a.png is an empty file; choose another.")


@pytest.mark.parametrize(("side", "complete"), [(60_000, False), (12_000, True), (20_000, True), (1_001, True)])
def test_a_decompression_bomb_is_refused_by_its_header(monkeypatch, side, complete):
    monkeypatch.setattr(ImageReading, "decode", lambda *args: pytest.fail("it was decoded"))
    data = png_bomb(side, complete)
    assert len(data) < 200_000
    status, said = refused(data)
    assert status == 413
    assert "at most 1,000,000 are accepted" in said
    assert side > 13_000 or f"{side:,} × {side:,} pixels" in said


def test_an_image_of_exactly_the_limit_is_read():
    assert decode_upload(png_bomb(1_000, complete=True), "a", RGB, LIMITS).shape == (1_000, 1_000, 3)


def test_a_tiff_is_judged_by_all_of_its_bands_and_by_what_it_claims(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    bands = tmp_path / "bands.tif"
    tifffile.imwrite(bands, np.zeros((500, 500, 7), np.uint8), compression="zlib", planarconfig="contig")
    first = decode_upload(bands.read_bytes(), "a", ImageReading(bands=(4, 5, 6)), LIMITS)
    assert first.shape == (500, 500, 3)
    tifffile.imwrite(bands, np.zeros((500, 500, 70), np.uint8), compression="zlib", planarconfig="contig")
    status, said = refused(bands.read_bytes())
    assert status == 413
    assert "too many bands or pages, 17.5 MB in all" in said
    pages = tmp_path / "pages.tif"
    tifffile.imwrite(pages, np.zeros((70, 500, 500), np.uint8), compression="zlib", photometric="minisblack")
    assert refused(pages.read_bytes())[0] == 413
    large = tmp_path / "large.tif"
    tifffile.imwrite(large, np.zeros((1001, 1001, 7), np.uint8), compression="zlib", planarconfig="contig")
    assert "1,001 × 1,001 pixels" in refused(large.read_bytes())[1]


def test_a_16_bit_png_that_unpacks_to_more_than_its_rows_is_cut_there():
    reading = ImageReading(value_range=(0, 65535))
    rows = np.zeros((8, 1 + 8 * 6), np.uint8)
    header = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    body = zlib.compress(rows.tobytes() + bytes(50_000_000), 9)
    data = b"\x89PNG\r\n\x1a\n"
    for kind, part in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b"")):
        data += struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
    tracemalloc.start()
    pixels = decode_upload(data, "a", reading, LIMITS)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pixels.shape == (8, 8, 3)
    assert most < 5_000_000


def test_a_turned_photo_is_known_and_left_as_it_is_stored():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(picture(), "JPEG", exif=exif)
    assert is_turned(data)
    assert not is_turned(encoded(picture(), "JPEG"))
    assert not is_turned(b"no image")
    assert decode_upload(data, "a", RGB, LIMITS).shape == (30, 40, 3)


def test_an_animation_counts_once():
    frames = [Image.fromarray(np.full((500, 500, 3), value, np.uint8)) for value in (0, 90, 180, 250, 30, 60)]
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert decode_upload(file.getvalue(), "a", RGB, LIMITS).max() == 0


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9", 10**10])
def test_limits_are_whole_numbers(value):
    for name in ("max_bytes", "max_pixels"):
        with pytest.raises(UserError, match=f"{name} is "):
            Limits(**{name: value})


def test_sizes_in_words():
    assert [size_in_words(n) for n in (12, 1500, 999_000, 20_000_000, 31_460_000)] == [
        "12 bytes",
        "1.5 kB",
        "999 kB",
        "20 MB",
        "31.5 MB",
    ]
