"""Windows of an axis: every pixel counts once, far enough from the borders of its window."""

import pytest

from faircl.deploy.prediction.options import PredictOptions
from faircl.deploy.prediction.windows import windows
from faircl.errors import UserError


@pytest.mark.parametrize("overlap", [0, 32, 64, 96])
@pytest.mark.parametrize("length", [1, 31, 191, 192, 193, 224, 225, 300, 320, 1000, 1024, 20_000])
def test_every_pixel_counts_once_and_away_from_borders(length, overlap):
    tile = 192
    found = windows(length, tile, overlap)
    counted = [pixel for one in found for pixel in range(one.first, one.last)]
    assert counted == list(range(length))
    for one in found:
        assert one.start % 32 == 0
        assert one.stop - one.start <= tile
        assert one.start == 0 or one.first - one.start >= overlap // 2
        assert one.stop == length or one.stop - one.last >= overlap // 2
    assert all(one.stop - one.start == tile for one in found[:-1])
    assert length <= tile or found[-1].stop - found[-1].start > tile - 32


def test_a_small_image_is_one_window():
    assert windows(100, 128, 64) == [(0, 100, 0, 100)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tile": 100}, "100 pixels wide; expected a multiple of 32"),
        ({"tile": 32}, "multiple of 32 from 64 on"),
        ({"tile": -64}, "multiple of 32"),
        ({"tile": 64.0}, "multiple of 32"),
        ({"tile": True}, "multiple of 32"),
        ({"overlap": 32}, "without a tile"),
        ({"tile": 128, "overlap": 96}, "from 0 to half of the tile, 64"),
        ({"tile": 128, "overlap": 10}, "overlap is 10 pixels"),
        ({"tile": 128, "overlap": -32}, "overlap is -32 pixels"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 1.5}, "batch is 1.5"),
    ],
)
def test_wrong_options_are_said(settings, words):
    with pytest.raises(UserError, match=words):
        PredictOptions(**settings)


def test_the_overlap_is_a_quarter_unless_it_is_given():
    assert PredictOptions(tile=1024).shared == 256
    assert PredictOptions(tile=96).shared == 0
    assert PredictOptions(tile=1024, overlap=64).shared == 64
    assert PredictOptions().shared == 0
