"""Metadata of images: CSV and JSON, names that match in several ways, mistakes."""

import json

import pytest

from faircl.auditing.groups_file import read_groups
from faircl.errors import UserError

IMAGES = ("ulm/a", "ulm/b", "c")


CSV = "image,city,camera\nulm/a,Ulm,left\nb.png,Ulm,\nc,Bonn,right\n"
MAPPING = {"ulm/a.jpg": {"city": "Ulm", "camera": "left"}, "b": {"city": "Ulm"}}
MAPPING["c"] = {"city": "Bonn", "camera": "right"}
LIST = [{"image": name, **about} for name, about in MAPPING.items()]


@pytest.mark.parametrize(
    ("name", "text"),
    [("g.csv", CSV), ("g.json", json.dumps(MAPPING)), ("g.json", json.dumps(LIST))],
    ids=["csv", "mapping", "list"],
)
def test_forms(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = read_groups(tmp_path / name, IMAGES)
    assert found.values == {
        "city": {"ulm/a": "Ulm", "ulm/b": "Ulm", "c": "Bonn"},
        "camera": {"ulm/a": "left", "c": "right"},
    }
    assert found.notes == ()


def test_what_does_not_match_is_said():
    found = read_groups({"c": {"city": 7}, "x": {"city": "Rome"}}, IMAGES)
    assert found.values == {"city": {"c": "7"}}
    assert found.notes == (
        "the groups: 2 images with no group: ulm/a, ulm/b",
        "the groups: 1 row with no such image: x",
    )


def test_names_of_two_folders_are_not_mixed_up():
    found = read_groups(
        {"a": {"city": "?"}, "ulm/a": {"city": "Ulm"}, "bonn/a": {"city": "Bonn"}}, ("bonn/a", "rome/a")
    )
    assert found.values == {"city": {"bonn/a": "Bonn"}}


def test_dots_in_names_are_no_extensions():
    rows = {"a.left": {"eye": "left"}, "a.right.PNG": {"eye": "right"}, "/": {"eye": "?"}}
    assert read_groups(rows, ("a.left", "a.right", "a")).values == {"eye": {"a.left": "left", "a.right": "right"}}


def test_line_breaks_in_quotes_belong_to_the_value(tmp_path):
    (tmp_path / "g.csv").write_text('image,city\r\nc,"Ulm\nOst"\r\nulm/a,x\u2028y\r\n', encoding="utf-8", newline="")
    assert read_groups(tmp_path / "g.csv", IMAGES).values == {"city": {"c": "Ulm\nOst", "ulm/a": "x\u2028y"}}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({}, "The groups hold no image"),
        ({"c": "Ulm"}, "Cannot read the groups: it holds 'Ulm' where the metadata of an image is expected"),
        ({7: {"city": "Ulm"}}, "names none of the images: found '7'"),
    ],
)
def test_mistakes_from_python(rows, words):
    with pytest.raises(UserError) as error:
        read_groups(rows, IMAGES)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("g.csv", "", 'without "image"'),
        ("g.csv", "file,city\na,Ulm\n", "its columns are file, city"),
        ("g.csv", "image,city\n", "hold no image"),
        ("g.csv", "image,city\na,Ulm,7\n", "line 2 has another number of columns"),
        ("g.csv", "image,city\na\n", "line 2 has another number of columns"),
        ("g.csv", "image,city\na,Ulm\na,Bonn\n", "names the image 'a' twice"),
        ("g.csv", "image\na\n", "no column beside the image"),
        ("g.csv", "image,city\nulm/a,\n", "no value for any of the images"),
        ("g.csv", 'image,city\n"a,Ulm\n', "Cannot read the groups"),
        ("g.csv", "image,city\nq,Ulm\n", "names none of the images: found 'q', expected names such as 'ulm/a'"),
        ("g.json", "{", "Cannot read the groups"),
        ("g.json", "3", "holds a int"),
        ("g.json", '{"a": "Ulm"}', "'Ulm' where the metadata of an image is expected"),
        ("g.json", '[{"city": "Ulm"}]', "where the metadata"),
        ("none.csv", None, "No such file"),
    ],
)
def test_mistakes(tmp_path, name, text, words):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        read_groups(tmp_path / name, IMAGES)
    assert words in str(error.value)
