"""The short ways through 8-bit PNGs, against Pillow and the values that were written."""

import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from faircl.data.index_png import count_index_png, read_palette_png
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import write_mask
from faircl.errors import UserError


def png(values, mode="L", **options) -> bytes:
    image = Image.fromarray(values)
    if mode == "P":
        image.putpalette(list(range(256)) * 3)
    file = BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**31), st.sampled_from(["L", "P"]), st.booleans())
def test_counts_agree_with_pillow(high, wide, seed, mode, optimize):
    values = np.random.default_rng(seed).integers(0, 256, (high, wide), dtype=np.uint8)
    data = png(values, mode, optimize=optimize)
    found = count_index_png(data)
    if found is not None:
        assert found.counts.tolist() == np.bincount(values.ravel(), minlength=256).tolist()
        assert found.size == (high, wide)
    counted = MaskCoding(255).count(data, Path("x.png"))
    assert counted.pixels.tolist() == np.bincount(values.ravel(), minlength=256)[:255].tolist()
    assert counted.ignored == int((values == 255).sum())


def test_counting_is_short_by_palette_pngs_and_not_by_others(tmp_path):
    values = np.arange(60, dtype=np.uint8).reshape(6, 10)
    write_mask(tmp_path / "p.png", values)
    data = (tmp_path / "p.png").read_bytes()
    assert count_index_png(data) is not None
    for at in (20, len(data) // 2, len(data) - 20):  # any damage is left to Pillow
        assert count_index_png(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None
    assert count_index_png(data[:-1]) is None
    plte = data.index(b"PLTE")
    length = int.from_bytes(data[plte - 4 : plte], "big")
    assert count_index_png(data[: plte - 4] + data[plte + 8 + length :]) is None  # no palette
    for wide in (0, 2**31 - 1):
        header = wide.to_bytes(4, "big") + data[20:29]
        check_sum = zlib.crc32(b"IHDR" + header).to_bytes(4, "big")
        assert count_index_png(data[:16] + header + check_sum + data[33:]) is None
    Image.fromarray(values.astype(np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray(values > 7).save(tmp_path / "one.png")
    for name in ("deep", "one"):
        assert count_index_png((tmp_path / f"{name}.png").read_bytes()) is None


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 2**31),
    st.sampled_from(["L", "P"]),
    st.sampled_from([{}, {"optimize": True}, {"compress_level": 0}, {"transparency": 3}, {"icc_profile": b"odd"}]),
)
def test_values_are_those_that_were_written(high, wide, seed, mode, options):
    rng = np.random.default_rng(seed)
    # Smooth in places, so that rows of grey are filtered in all ways.
    values = np.repeat(rng.integers(0, 128, (high, -(-wide // 4)), dtype=np.uint8), 4, axis=1)[:, :wide].copy()
    data = png(values, mode, **options)
    found = read_palette_png(data)
    assert (found is None) == (mode == "L")
    if found is not None:
        assert found.flags.writeable
        np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(MaskCoding(128).decode(data, Path("x")), values)


def test_values_of_other_and_damaged_files_are_left_to_pillow():
    values = np.random.default_rng(0).integers(0, 9, (31, 17), dtype=np.uint8)
    data = png(values, "P")
    assert read_palette_png(data) is not None
    for at in (20, len(data) // 2, len(data) - 20):
        assert read_palette_png(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None
    assert read_palette_png(data[:-1]) is None
    assert read_palette_png(b"") is None
    for other in (values.astype(np.uint16), values > 3, values):
        assert read_palette_png(png(other)) is None
    start = data.index(b"IDAT") - 4
    length = int.from_bytes(data[start : start + 4], "big")
    short = b"IDAT" + zlib.compress(zlib.decompress(data[start + 8 : start + 8 + length])[:100])
    cut = data[:start] + (len(short) - 4).to_bytes(4, "big") + short + zlib.crc32(short).to_bytes(4, "big")
    assert read_palette_png(cut + data[start + 12 + length :]) is None  # rows are missing


@pytest.mark.parametrize("mode", ["L", "P"])
@pytest.mark.parametrize("numbers", [None, np.arange(9, dtype=np.uint16)[::-1].copy()], ids=["own", "mapped"])
def test_a_value_that_means_nothing_is_named(mode, numbers):
    values = np.zeros((5, 7), np.uint8)
    values[3, 2] = 9
    with pytest.raises(UserError, match="Mask x holds value 9 in 1 pixels, but"):
        MaskCoding(9, values=numbers).decode(png(values, mode), Path("x"))
    values[3, 2] = 255
    assert MaskCoding(9, values=numbers).decode(png(values, mode), Path("x"))[3, 2] == 255
