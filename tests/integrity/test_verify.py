"""Images are looked at once before training, and again when they have changed."""

import os

import numpy as np
import pytest
from PIL import Image

from faircl.errors import UserError
from faircl.integrity.verify import verify_images
from faircl.readers.folder import FolderData


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


def test_what_was_in_order_is_remembered_though_another_is_not(street, silent):
    (street / "images/train/train-00020.png").write_bytes(b"")
    with pytest.raises(UserError, match="train-00020"):
        look(street, silent)
    counted = []
    data = FolderData(street)
    read = data.read
    data.read = lambda split, id: counted.append(id) or read(split, id)
    with pytest.raises(UserError, match="train-00020"):
        verify_images(data, "train", data.ids("train"), silent())
    assert len(counted) < 10


def test_data_that_is_not_files_is_looked_at_too(silent):
    class Broken:
        def ids(self, split):
            return ["a"]

        def read(self, split, id):
            raise UserError("image a is broken")

    with pytest.raises(UserError, match="image a is broken"):
        verify_images(Broken(), "train", ["a"], silent())
