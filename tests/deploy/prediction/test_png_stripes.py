"""PNG files written stripe by stripe are what Pillow reads back."""

import io

import numpy as np
import pytest
from PIL import Image

from faircl.data.masks import voc_palette
from faircl.deploy.prediction.png_stripes import PngStripes

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((13, 17), np.uint8), ((1, 1), np.uint8), ((13, 17, 3), np.uint8), ((13, 17), np.uint16), ((1, 1), np.uint16)],
)
@pytest.mark.parametrize("heights", [[13], [1, 5, 7]])
def test_pillow_reads_the_same_pixels(shape, dtype, heights):
    pixels = RANDOM.integers(0, np.iinfo(dtype).max + 1, shape, dtype)
    file = io.BytesIO()
    png = PngStripes(file, shape[1], shape[0])
    top = 0
    for height in heights if shape[0] > 1 else [1]:
        png.write(pixels[top : top + height])
        top += height
    png.close()
    with Image.open(file) as read:
        read.load()
        assert read.mode == ("RGB" if len(shape) == 3 else "L" if dtype == np.uint8 else "I;16")
        assert np.array_equal(np.asarray(read), pixels)


def test_a_palette_is_kept_and_views_are_written():
    pixels = RANDOM.integers(0, 256, (8, 20), np.uint8)[:, ::2]
    file = io.BytesIO()
    png = PngStripes(file, 10, 8, voc_palette(256))
    png.write(pixels)
    png.close()
    with Image.open(file) as read:
        assert read.mode == "P"
        assert np.array_equal(np.asarray(read), pixels)
        assert np.array_equal(np.reshape(read.getpalette(), (-1, 3)), voc_palette(256))


def test_rows_that_are_missing_are_an_error():
    png = PngStripes(io.BytesIO(), 4, 3)
    png.write(np.zeros((2, 4), np.uint8))
    with pytest.raises(ValueError, match="2 of 3 rows"):
        png.close()
