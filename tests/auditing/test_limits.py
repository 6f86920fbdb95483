"""Limits: which hold, which are broken, and what they say."""

import copy
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from records import named, random_record, record_of

from faircl.auditing.limits import Limits, check_drops, check_limits, parse_class_limits, read_limits
from faircl.errors import UserError
from faircl.fairness.audit import audit_record
from faircl.fairness.difference import paired_difference

# IoUs by hand: c0 2/3, c1 1/2, c2 is in no label.
RECORD = record_of([([0, 0, 1, 1], [0, 0, 0, 1])], named(3))
AUDIT = audit_record(RECORD)
MEAN, STD, GAP = 100 * (2 / 3 + 1 / 2) / 2, 100 * (2 / 3 - 1 / 2) / 2, 100 * (2 / 3 - 1 / 2)


def checked(**limits):
    return [(one.limit, one.of, one.holds) for one in check_limits(AUDIT, read_limits(limits))]


def test_no_limits():
    assert checked() == []
    assert not Limits()


@pytest.mark.parametrize(("name", "found", "sign"), [("min_miou", MEAN, 1), ("max_std", STD, -1), ("max_gap", GAP, -1)])
def test_measures(name, found, sign):
    (held,) = check_limits(AUDIT, read_limits({name: found - sign * 0.01}))
    (broken,) = check_limits(AUDIT, read_limits({name: found + sign * 0.01}))
    assert held.holds
    assert not broken.holds
    assert broken.found == pytest.approx(found)
    assert "mean IoU" in broken.text  # a spread is never told without its mean


def test_classes():
    assert checked(min_class_iou=40) == [("min_class_iou", "c1", True)]  # the worst that was looked at
    assert checked(min_class_iou=55) == [("min_class_iou", "c1", False)]
    assert checked(min_class_iou=90) == [("min_class_iou", "c1", False), ("min_class_iou", "c0", False)]
    assert checked(min_class_iou={"c0": 60}) == [("min_class_iou", "c0", True)]
    both = Limits(min_class_iou=55, class_ious={"c1": 45})
    assert [one.holds for one in check_limits(AUDIT, both)] == [True, True]
    assert not Limits(class_ious={"c1": None})  # as from JSON: no limit


def test_a_class_without_pixels_breaks_its_own_limit_only():
    (check,) = check_limits(AUDIT, read_limits({"min_class_iou": {"c2": 0}}))
    assert not check.holds
    assert math.isnan(check.found)
    assert check.text.startswith("'c2' has no label pixel")


def test_mistakes():
    with pytest.raises(UserError, match="no class 'c7' to hold a limit"):
        checked(min_class_iou={"c7": 1})
    with pytest.raises(UserError, match=r"no limit 'max_sdt'\. Did you mean 'max_std'"):
        checked(max_sdt=1)
    for wrong in (math.nan, -1, 101, "5", True, math.inf):
        with pytest.raises(UserError, match="The limit max_std is"):
            checked(max_std=wrong)
        with pytest.raises(UserError, match="min_class_iou of 'c0' is"):
            checked(min_class_iou={"c0": wrong})


@pytest.mark.parametrize("name", ["max_std", "max_gap", "min_miou", "min_class_iou"])
def test_a_share_is_taken_for_a_mistake(name):
    with pytest.raises(UserError, match=rf"{name} is 0.6, but limits are in percent: did you mean 60\? Write '0.6%'"):
        Limits(**{name: 0.6})
    assert getattr(Limits(**{name: "0.6%"}), name) == 0.6
    assert [getattr(Limits(**{name: value}), name) for value in (0, 1, "60%")] == [0, 1, 60]
    for wrong in ("%", "nan%", "101%", "-1%", "x%"):
        with pytest.raises(UserError, match=f"The limit {name} is '{wrong}'"):
            Limits(**{name: wrong})


def test_a_share_for_one_class_is_a_mistake_and_a_part_of_a_point_is_none():
    with pytest.raises(UserError, match=r"min_class_iou of 'c0' is 0.07, .*did you mean 7\?"):
        checked(min_class_iou={"c0": 0.07})
    parsed = Limits(**parse_class_limits(["c0=0.5%", "0.25%"]))
    assert (parsed.min_class_iou, parsed.class_ious) == (0.25, {"c0": 0.5})
    assert Limits(max_drop=0.5).max_drop == 0.5


def test_limits_below_one_percent_can_be_copied():
    limits = Limits(max_std="0.6%", min_miou=40, class_ious={"c0": "0.5%"})
    copied = replace(limits, min_miou="0.7%")
    assert (copied.max_std, copied.min_miou, copied.class_ious) == (0.6, 0.7, {"c0": 0.5})
    assert Limits(**asdict(limits)) == replace(limits) == copy.deepcopy(limits) == limits
    with pytest.raises(UserError, match=r"max_gap is 0\.6, but limits are in percent"):
        replace(limits, max_gap=0.6)


def test_options_of_the_command_line():
    assert parse_class_limits(["30", "=cmd=20", "a=b=5"]) == {
        "min_class_iou": 30,
        "class_ious": {"=cmd": 20, "a=b": 5},
    }
    for wrong, words in (
        (["car"], "'car'; expected"),
        (["car="], "expected an IoU"),
        (["1", "2"], "twice, as 1 and 2"),
        (["a=1", "a=2"], "of 'a' is given twice"),
    ):
        with pytest.raises(UserError, match=words):
            parse_class_limits(wrong)


# ---- drops


def records(lost: float, images: int = 60):
    """Two records of which the second has a share of c1's pixels wrong in every image, the first 10 %."""
    random = np.random.default_rng(0)

    def record(share):
        pairs = []
        for _ in range(images):
            truth = np.repeat([0, 1], 200)
            wrong = (random.random(400) < share + 0.02 * random.normal()) & (truth == 1)
            pairs.append((truth, np.where(wrong, 0, truth)))
        return record_of(pairs, named(2))

    return record(0.1), record(0.1 + lost)


def test_a_sure_loss_breaks_the_limit():
    difference = paired_difference(*records(0.3))
    checks = list(check_drops(difference, 5))
    assert {one.of: one.holds for one in checks} == {"": False, "c0": False, "c1": False}
    (lost,) = (one for one in checks if one.of == "c1")
    change = next(one for one in difference.classes if one.name == "c1")
    assert lost.found == pytest.approx(change.before - change.after)
    assert "interval" in lost.text


def test_a_loss_within_its_interval_holds():
    first, second = records(0.3)
    difference = paired_difference(first, second)
    change = next(one for one in difference.classes if one.name == "c1")
    bound = -change.difference - 0.01  # the point lies above the limit, the interval does not
    (check,) = check_drops(difference, bound)
    assert check.holds
    assert check.found > bound


def test_a_gain_holds():
    (check,) = check_drops(paired_difference(*reversed(records(0.3))), 0)
    assert check.holds
    assert check.found < 0


def test_the_same_record_loses_nothing():
    record = random_record()
    (check,) = check_drops(paired_difference(record, record), 0)
    assert check.holds
    assert check.found == 0
