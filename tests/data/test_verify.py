"""Images are looked at once before training, and again when they have changed."""

import os

import numpy as np
import pytest
from PIL import Image

from faircl.data.folder import FolderData
from faircl.data.verify import verify_images
from faircl.errors import UserError


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRCL_CACHE", str(tmp_path / "cache"))


def look(street, silent, split="train"):
    reporter = silent()
    data = FolderData(street)
    verify_images(data, split, data.ids(split), reporter)
    return reporter.tasks


def test_every_image_is_looked_at_once(street, silent):
    assert look(street, silent) == ["looking at images (train)"]
    assert look(street, silent) == []
    assert look(street, silent, "test") == ["looking at images (test)"]
    assert look(street, silent) == []


def test_a_changed_image_is_looked_at_again(street, silent):
    look(street, silent)
    path = street / "images/train/train-00003.png"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UserError, match=r"train-00003\.png cannot be decoded"):
        look(street, silent)
    Image.fromarray(np.zeros((32, 31, 3), np.uint8)).save(path)
    with pytest.raises(UserError, match="both must have the same size"):
        look(street, silent)


def test_missing_images_are_named(street, silent):
    data = FolderData(street)
    data.ids("train")
    os.unlink(street / "images/train/train-00001.png")
    with pytest.raises(UserError, match=r"1 mask with no image: masks/train/train-00001\.png"):
        verify_images(data, "train", data.ids("train"), silent())


def test_a_cache_that_cannot_be_kept_does_not_matter(street, silent, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FAIRCL_CACHE", str(tmp_path / "file"))
    assert look(street, silent) == ["looking at images (train)"]
    assert look(street, silent) == ["looking at images (train)"]
