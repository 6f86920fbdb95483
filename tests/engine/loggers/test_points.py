"""Points: which numbers of a record are charted, where, and under which keys."""

import math
import re

import pytest

from faircl.engine.loggers.points import KINDS, Position, class_key, key, point, position

TRAIN = {"kind": "train", "step": 1, "iteration": 3, "iterations": 5, "lr": 0.5, "loss": 3.0}
EVAL = {
    "kind": "eval",
    "step": 1,
    "miou": {"old": 50.0, "new": None, "all": 40.0},
    "std": 3.0,
    "gap": 9.0,
    "error_gap": math.nan,
    "worst": {"name": "b", "iou": 31.0},
    "classes": [{"id": 0, "name": "a", "iou": 40.0}, {"id": 7, "name": "b", "iou": 31.0}],
}


def test_a_record_of_training():
    record = TRAIN | {"terms": {"seg": 2.0, "odd name": 1.0}, "measures": {"bound/left": 4.0, "broken": math.nan}}
    assert point(record, [10, 5]) == (
        Position(13, 0),
        1,
        {
            "step1/loss": 3.0,
            "step1/lr": 0.5,
            "step1/terms/seg": 2.0,
            "step1/terms/odd_name": 1.0,
            "step1/measures/bound/left": 4.0,
        },
    )


def test_a_record_of_an_evaluation():
    scores = {
        "miou/old": 50.0,
        "miou/all": 40.0,
        "std": 3.0,
        "gap": 9.0,
        "worst": 31.0,
        "iou/0_a": 40.0,
        "iou/7_b": 31.0,
    }
    assert point(EVAL, [10, 5]) == (Position(15, 2), 1, {f"eval/{name}": value for name, value in scores.items()})
    validation = EVAL | {"kind": "validation", "iteration": 2}
    expected = {f"step1/validation/{name}": value for name, value in scores.items()}
    assert point(validation, [10, 5]) == (Position(12, 1), 1, expected)


def test_records_without_a_present_class():
    empty = {"kind": "eval", "step": 0, "miou": {"all": None}, "worst": None, "classes": []}
    assert point(empty, [3]).scalars == {}


def test_records_of_one_update_have_an_order():
    last = TRAIN | {"iteration": 5}
    places = [position(last | {"kind": kind}, [10, 5]) for kind in KINDS]
    assert places == sorted(set(places))
    assert {place.update for place in places} == {15}


def test_joint_training_is_evaluated_as_a_later_step():
    assert position(EVAL | {"step": 4}, [10]) == (10, 2)


NASTY = ["a/b", "<script>alert(1)</script>", '"quotes", commas', "=SUM(A1)", "🚲 bicycle", "..", "", "x" * 500, "Đường"]


@pytest.mark.parametrize("name", NASTY)
def test_keys_of_classes_are_plain(name):
    made = class_key(12, name)
    assert re.fullmatch(r"12_[\w-]+", made)
    assert len(made) < 100


def test_keys_of_classes_are_unique_and_readable():
    assert len({class_key(id, name) for id, name in enumerate([*NASTY, *NASTY])}) == 2 * len(NASTY)
    assert class_key(3, "traffic light") == "3_traffic_light"
    assert class_key(4, "Đường") == "4_Đường"
    assert key("a//..") == "a/_/__"
