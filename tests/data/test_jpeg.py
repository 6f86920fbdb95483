"""JPEGs are decoded by torchvision where it is loaded, to the pixels of Pillow."""

import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torchvision.io  # noqa: F401  # loaded for the tests
from PIL import Image

from faircl.data import images
from faircl.data.images import decode_image
from faircl.errors import UserError


def jpeg(size=(45, 61), **options) -> bytes:
    """Write a smooth picture with noise."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)).resize(size[::-1])
    noisy = np.clip(np.asarray(coarse) + rng.normal(0, 9, (*size, 3)), 0, 255).astype(np.uint8)
    file = BytesIO()
    mode = options.pop("mode", "RGB")
    Image.fromarray(noisy).convert(mode).save(file, options.pop("format", "JPEG"), **options)
    return file.getvalue()


def by_pillow(data: bytes) -> np.ndarray:
    return np.array(Image.open(BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("quality", [20, 75, 95, 100])
@pytest.mark.parametrize(
    "options",
    [
        *({"subsampling": kind, "progressive": slowly} for kind in (0, 1, 2) for slowly in (False, True)),
        {"subsampling": 0, "keep_rgb": True},
    ],
    ids=str,
)
def test_torchvision_decodes_to_the_pixels_of_pillow(quality, options):
    for size in ((45, 61), (16, 16), (1, 1), (7, 2)):
        data = jpeg(size, quality=quality, **options)
        found = images._decode_jpeg(data)
        assert found is not None
        assert found.flags.writeable
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, by_pillow(data))
        np.testing.assert_array_equal(decode_image(data, Path("x.jpg")), by_pillow(data))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_jpegs_are_left_to_pillow(mode):
    data = jpeg(mode=mode)
    assert images._decode_jpeg(data) is None
    np.testing.assert_array_equal(decode_image(data, Path("x.jpg")), by_pillow(data))


def test_a_turned_jpeg_stays_as_stored():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = jpeg(exif=exif)
    assert images._decode_jpeg(data).shape == (45, 61, 3)
    np.testing.assert_array_equal(decode_image(data, Path("x.jpg")), decode_image(jpeg(), Path("x.jpg")))


@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_a_cut_jpeg_is_the_same_sentence(kept):
    whole = jpeg()
    data = whole[: int(kept * len(whole))]
    assert images._decode_jpeg(data) is None
    with pytest.raises(UserError, match=r"Image x\.jpg cannot be decoded: it is not a complete picture \(OSError\)"):
        decode_image(data, Path("x.jpg"))


def test_without_torchvision_nothing_is_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torchvision.io")
    data = jpeg()
    assert images._decode_jpeg(data) is None
    np.testing.assert_array_equal(decode_image(data, Path("x.jpg")), by_pillow(data))
    assert "torchvision.io" not in sys.modules
