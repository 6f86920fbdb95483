"""Which images label which new classes: groups that are learned one after the other."""

import pytest

from faircl.deploy.adding.request import Request, class_groups
from faircl.errors import UserError

IDS = ["a/1", "a/2", "b/1", "c/1"]


def groups(labelled, names=("van", "tram", "kiosk")):
    return class_groups(Request({"name": "folder"}, labelled=labelled), list(names), IDS)


def test_without_lists_all_images_label_all_classes():
    assert groups({}) == [(("van", "tram", "kiosk"), tuple(IDS))]


def test_classes_of_different_images_come_one_after_the_other_most_images_first():
    found = groups({"a/*": ["van", "road"], "b/*": ["tram", "kiosk", "van"], "c/*": ["tram", "kiosk"]})
    assert found == [(("van",), ("a/1", "a/2", "b/1")), (("tram", "kiosk"), ("b/1", "c/1"))]


def test_the_first_pattern_counts_and_other_images_label_everything():
    found = groups({"a/1": ["van"], "a/*": ["tram"]}, ("van", "tram"))
    assert dict(found) == {("van",): ("a/1", "b/1", "c/1"), ("tram",): ("a/2", "b/1", "c/1")}


def test_a_class_that_no_image_labels():
    with pytest.raises(UserError, match="No image labels the new class 'kiosk'"):
        groups({"*": ["van", "tram"]})


def test_a_request_comes_back_as_it_was(tmp_path):
    request = Request(
        {"name": "folder", "root": "x"},
        holdout={"name": "folder", "root": "y"},
        classes=("van",),
        then=(("tram", "kiosk"),),
        same={"a": "b"},
        labelled={"*": ["van"]},
        complete=True,
        max_drop=1.5,
        max_class_drop=4.0,
        settings=("seed=1",),
    )
    request.save(tmp_path)
    assert Request.load(tmp_path) == request
    (tmp_path / "request.json").write_text('{"data": {}}')
    with pytest.raises(UserError, match="damaged"):
        Request.load(tmp_path)
