"""Ids of mask files in every coding, of arrays, and at another size."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from faircl.auditing.mask_ids import array_ids, decode_ids, resized
from faircl.data.masks import ColourTable
from faircl.errors import UserError

IDS = np.array([[0, 1, 2], [2, 255, 1]], np.uint8)
COLOURS = {(0, 0, 0): 0, (128, 64, 128): 1, (0, 0, 142): 2}


def stored(image: Image.Image, form: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def palette_image(values, colours) -> Image.Image:
    image = Image.fromarray(np.asarray(values, np.uint8))
    image.putpalette(np.asarray(colours, np.uint8).tobytes())
    return image


def decoded(data, tmp_path, colours=None):
    return decode_ids(data, tmp_path / "mask.png", colours, "classes.txt").tolist()


def test_index_files(tmp_path):
    assert decoded(stored(Image.fromarray(IDS)), tmp_path) == IDS.tolist()
    assert decoded(stored(palette_image(IDS, np.zeros((256, 3)))), tmp_path) == IDS.tolist()
    assert decoded(stored(Image.fromarray(IDS), "TIFF"), tmp_path) == IDS.tolist()
    deep = IDS.astype(np.uint16) * 200
    assert decoded(stored(Image.fromarray(deep)), tmp_path) == deep.tolist()


def test_colours(tmp_path):
    table = ColourTable(COLOURS)
    by_id = {id: colour for colour, id in COLOURS.items()}
    ids = np.array([[0, 1], [2, 0]])
    painted = np.array([[by_id[id] for id in row] for row in ids], np.uint8)
    assert decoded(stored(Image.fromarray(painted)), tmp_path, table) == ids.tolist()
    # a palette in another order is read by its colours; one with an unknown colour by its values
    reordered = palette_image([[2, 0], [1, 2]], [by_id[1], by_id[2], by_id[0]])
    assert decoded(stored(reordered), tmp_path, table) == ids.tolist()
    unknown = palette_image([[2, 0], [1, 2]], [by_id[1], by_id[2], (9, 9, 9)])
    assert decoded(stored(unknown), tmp_path, table) == [[2, 0], [1, 2]]
    with pytest.raises(UserError, match=r"no class has that colour in classes\.txt"):
        decoded(stored(Image.fromarray(painted + 1)), tmp_path, table)


def test_files_that_are_no_masks(tmp_path):
    with pytest.raises(UserError, match=r"mask.png is an RGB picture, but no class has a colour in classes.txt"):
        decoded(stored(Image.new("RGB", (2, 2))), tmp_path)
    with pytest.raises(UserError, match="is a JPEG file"):
        decoded(stored(Image.new("L", (2, 2)), "JPEG"), tmp_path)
    for data in (b"", b"no picture", stored(Image.fromarray(IDS))[:40], stored(palette_image(IDS, COLOURS_256))[:-30]):
        with pytest.raises(UserError, match=r"mask.png cannot be decoded"):
            decoded(data, tmp_path)


COLOURS_256 = np.zeros((256, 3))


def test_arrays():
    assert array_ids(IDS, "a") is IDS
    assert array_ids([[0, 300], [-100, 1]], "a").tolist() == [[0, 300], [65535, 1]]
    assert array_ids(torch.tensor([[1, 2]]), "a").dtype == np.uint16
    for wrong, words in (
        (np.zeros((2, 2)), "type float64"),
        (np.zeros((1, 2, 2), int), r"shape \(1, 2, 2\)"),
        (np.zeros((0, 2), int), r"shape \(0, 2\)"),
        ([[70000]], "the value 70000"),
    ):
        with pytest.raises(UserError, match=words):
            array_ids(wrong, "a")


@pytest.mark.parametrize("size", [(3, 5), (7, 4), (24, 30), (1, 1)])
def test_resizing_equals_torch(size):
    mask = np.random.default_rng(0).integers(0, 9, (12, 10)).astype(np.uint8)
    expected = F.interpolate(torch.from_numpy(mask)[None, None].float(), size, mode="nearest-exact")[0, 0]
    assert (resized(mask, size) == expected.numpy()).all()
