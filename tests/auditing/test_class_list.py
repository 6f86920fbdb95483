"""Class lists: every form of file, and every mistake in one."""

import json

import pytest

from faircl.auditing.class_list import read_class_list
from faircl.errors import UserError
from faircl.fairness.record import RecordedClass

ODD = ["<script>alert(1)</script>", '=cmd|"/c calc"!A1', 'a "quoted", comma 🚲', "-1+2"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.txt", "# comment\nroad\ncar\n"),
        ("numbered.txt", "0 road\n1 car\n"),
        ("numbered.csv", "0,road\n1, car\n"),
        ("list.json", '["road", "car"]'),
        ("by_id.json", '{"0": "road", "1": "car"}'),
        ("by_name.json", '{"road": 0, "car": 1}'),
        ("config.json", '{"id2label": {"0": "road", "1": "car"}, "hidden_sizes": [1]}'),
        ("entries.json", '[{"id": 0, "name": "road"}, {"id": 1, "name": "car"}]'),
        ("list.yaml", "- road\n- car\n"),
        ("by_id.yml", "0: road\n1: car\n"),
    ],
)
def test_forms(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_class_list(tmp_path / name).names == {0: "road", 1: "car"}


def test_python_sources():
    assert read_class_list(["road", "car"]).names == {0: "road", 1: "car"}
    assert read_class_list({7: "road", 8: "car"}).names == {7: "road", 8: "car"}


def test_colours_and_ids(tmp_path):
    (tmp_path / "c.txt").write_text("7 road 128 64 128\n26 sports car 0 0 142\n")
    found = read_class_list(tmp_path / "c.txt")
    assert found.names == {7: "road", 26: "sports car"}
    assert found.colours == {(128, 64, 128): 7, (0, 0, 142): 26}
    (tmp_path / "c.json").write_text(
        '[{"id": 7, "name": "road", "color": [128, 64, 128]}, {"id": 26, "name": "sports car", "colour": "#00008e"}]'
    )
    assert read_class_list(tmp_path / "c.json").colours == found.colours


@pytest.mark.parametrize("form", ["txt", "json"])
def test_odd_names_stay_as_they_are(tmp_path, form):
    path = tmp_path / f"classes.{form}"
    path.write_text(json.dumps(ODD) if form == "json" else "\n".join(ODD), encoding="utf-8")
    assert list(read_class_list(path).names.values()) == ODD


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "", "names no class"),
        ("a.txt", "road\n\ncar\n", "empty line where the name of id 1"),
        ("a.txt", "road\nroad\n", "names 'road' twice, as ids 0 and 1"),
        ("a.txt", "3 road\n3 car\n", "gives id 3 twice"),
        ("a.txt", "70000 road\n", "ids go from 0 to 65534"),
        ("a.txt", "road 300 0 0\n", "go from 0 to 255"),
        ("a.json", "[", "Cannot read"),
        ("a.json", "[]", "names no class"),
        ("a.json", "3", "holds a int"),
        ("a.json", '{"0": 1}', "gives id 0 the name 1"),
        ("a.json", '{"road": "first"}', "'first' where the id of a class is expected"),
        ("a.json", '["road", "road"]', "names 'road' twice"),
        ("a.json", '[{"name": "road", "color": [1, 2]}]', "the colour [1, 2]"),
        ("a.json", '[{"name": "a", "color": [1, 2, 3]}, {"name": "b", "color": [1, 2, 3]}]', "gives colour (1, 2, 3)"),
        ("a.yaml", "0: road\n0: car\n", "given twice"),
        ("a.yaml", "a: [", "Cannot read"),
    ],
)
def test_mistakes(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        read_class_list(tmp_path / name)
    assert words in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_class_list(tmp_path / "none.txt")
    with pytest.raises(UserError, match="is a folder"):
        read_class_list(tmp_path)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        read_class_list(tmp_path / "binary.txt")


def test_ignored_and_background():
    found = read_class_list({0: "void", 1: "road", 2: "car"})
    assert found.ignored(["void", 255, "7"]) == {0, 255, 7}
    assert found.recorded(frozenset({0, 255}), "road") == (RecordedClass(1, "road", 0, True), RecordedClass(2, "car"))
    assert [one.background for one in found.recorded(frozenset(), 2)] == [False, False, True]
    for wanted, words in (("roda", "Did you mean 'road'"), (70000, "from 0 to 65535"), (-1, "from 0 to 65535")):
        with pytest.raises(UserError, match=words):
            found.ignored([wanted])
    with pytest.raises(UserError, match="no class 'sky' for the background"):
        found.recorded(frozenset(), "sky")
    with pytest.raises(UserError, match="both ignored and the background"):
        found.recorded(frozenset({1}), "road")
    with pytest.raises(UserError, match="All classes"):
        found.recorded(frozenset({0, 1, 2}), None)
