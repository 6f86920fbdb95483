"""Images that a command names, and the names of their results."""

import os

import pytest

from faircl.deploy.input_files import find_images
from faircl.errors import UserError


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree of empty files; paths are relative to it."""
    for name in (
        "a/x.png",
        "a/y.JPG",
        "a/deep/x.png",
        "b/x.png",
        "b/x.jpg",
        "a/notes.txt",
        "a/.hidden.png",
        "out/x.png",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(tree, *given, out="out"):
    return {str(one.path): one.name for one in find_images(given, tree / out)}


def test_folders_are_searched_to_the_bottom(tree):
    assert found(tree, "a") == {"a/x.png": "x", "a/y.JPG": "y", "a/deep/x.png": "deep/x"}
    assert list(found(tree, tree / "a").values()) == ["x", "y", "deep/x"]


def test_patterns_and_files(tree):
    assert found(tree, "a/*.png") == {"a/x.png": "x"}
    assert found(tree, "a/**/*.png") == {"a/x.png": "x", "a/deep/x.png": "deep/x"}
    assert found(tree, "?/deep") == {"a/deep/x.png": "a/deep/x"}
    assert found(tree, "a/notes.txt") == {"a/notes.txt": "notes"}  # named itself: reading it says what is wrong


def test_equal_names_are_told_apart(tree):
    assert found(tree, "a/x.png", "b/x.png") == {"a/x.png": "a/x", "b/x.png": "b/x"}
    assert found(tree, "a", "b/x.png")["a/deep/x.png"] == "a/deep/x"
    assert found(tree, "b") == {"b/x.jpg": "x.jpg", "b/x.png": "x.png"}
    every = found(tree, "a", "b")
    assert len(every) == len(set(every.values())) == 5


def test_an_image_is_taken_once(tree):
    assert list(found(tree, "a/x.png", "a", tree / "a/x.png", "a/*.png")) == ["a/x.png", "a/y.JPG", "a/deep/x.png"]


def test_the_output_folder_is_left_out(tree):
    assert not any(path.startswith("out") for path in found(tree, "."))
    assert not any(path.startswith("out") for path in found(tree, "**/*.png"))


def test_a_name_with_brackets_is_a_name_first(tree):
    (tree / "a/z[1].png").touch()
    assert found(tree, "a/z[1].png") == {"a/z[1].png": "z[1]"}


def test_links_in_a_circle_end(tree):
    os.symlink(tree / "a", tree / "a/deep/again")
    assert len(found(tree, "a")) == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "No images are given"),
        (["nowhere"], "no image or folder nowhere"),
        (["a/*.gif"], r"No image matches a/\*\.gif"),
        (["a/*.txt"], "No image matches"),
        (["out"], "holds no image outside of the output folder"),
    ],
)
def test_what_is_not_there_is_said(tree, given, words):
    with pytest.raises(UserError, match=words):
        found(tree, *given)


def test_a_name_with_two_suffixes_is_that_of_no_other_image(tmp_path):
    for name in ("photo.jpg", "photo.png", "photo.jpg.png"):
        (tmp_path / name).touch()
    names = {image.path.name: image.name for image in find_images([tmp_path], tmp_path / "out")}
    assert names == {"photo.jpg": "photo.jpg", "photo.png": "photo.png", "photo.jpg.png": "photo.jpg.png"}
