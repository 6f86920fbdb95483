"""The code of brush regions, against bits written by hand and a plain reference."""

from itertools import groupby

import numpy as np
import pytest

from faircl.data.brush_rle import decode_region, encode_region

HEADER = "00111" + "0010" + "0011" + "0111" + "1111"  # words of 8 bits; sizes 3, 4, 8, 16


def pack(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


def reference(region: np.ndarray) -> bytes:
    """Return the code of a region, bit by bit."""
    words = [255 if inside else 0 for inside in region.ravel().tolist() for _ in range(4)]
    bits = f"{len(words):032b}" + HEADER
    for value, run in groupby(words):
        length = len(list(run))
        while length:
            part = min(length, 65536)
            kind = next(kind for kind, size in enumerate((3, 4, 8, 16)) if part <= 2**size)
            bits += "1" + f"{kind:02b}" + f"{part - 1:0{(3, 4, 8, 16)[kind]}b}" + f"{value:08b}"
            length -= part
    return pack(bits)


def test_two_pixels_by_hand():
    # 8 words; 4 of 0 and 4 of 255: x = 1, k = 0 (3 bits), n - 1 = 3
    code = pack(f"{8:032b}" + HEADER + "1" + "00" + "011" + "00000000" + "1" + "00" + "011" + "11111111")
    assert encode_region(np.array([[False, True]])) == code
    assert decode_region(code, 1, 2).tolist() == [[False, True]]
    assert decode_region(code, 2, 1).tolist() == [[False], [True]]


def test_the_beginning_of_a_large_empty_region_is_that_of_published_exports():
    begins = [2, 1, 233, 240, 57, 27, 255, 255, 255, 0, 255, 255, 224, 31, 255, 252, 3, 255, 255, 128, 127, 255, 240]
    assert list(encode_region(np.zeros((2527, 3332), bool)))[: len(begins)] == begins


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (41, 17), (200, 150)])
@pytest.mark.parametrize("share", [0, 0.02, 0.5, 1])
def test_regions_of_any_kind(shape, share):
    region = np.random.default_rng(shape[0]).random(shape) < share
    code = encode_region(region)
    assert code == reference(region)
    np.testing.assert_array_equal(decode_region(code, *shape), region)


def test_groups_of_single_words_and_other_sizes():
    # words of 8 bits, sizes 1, 2, 5, 9: alpha is the fourth word of a pixel, any value but 0 counts
    words = [9, 9, 9, 0, 1, 2, 3, 4, 0, 0, 0, 1]
    literal = "".join(f"{word:08b}" for word in words[:8])
    bits = f"{12:032b}" + "00111" + "0000" + "0001" + "0100" + "1000"
    bits += "0" + "10" + f"{8 - 1:05b}" + literal  # eight words as they are
    bits += "1" + "01" + f"{3 - 1:02b}" + "00000000" + "0" + "00" + "0" + "00000001"
    assert decode_region(pack(bits), 1, 3).tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"", "too few"),
        (encode_region(np.ones((3, 3), bool)), "36 numbers, not four for each of 2x3 pixels"),
        (encode_region(np.eye(3, 2, dtype=bool))[:-3], "ends too early"),
        (pack(f"{24:032b}" + HEADER + "1" + "10" + f"{99:08b}" + "00000000"), "longer than the image"),
        (pack(f"{24:032b}" + HEADER + "0" + "10" + f"{23:08b}" + "00000000"), "ends too early"),
    ],
)
def test_damaged_codes(code, message):
    with pytest.raises(ValueError, match=message):
        decode_region(code, 3, 2)
