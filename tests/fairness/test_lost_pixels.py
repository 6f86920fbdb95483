"""Where lost pixels went, by hand and by a plain loop over pixels."""

from dataclasses import replace

import numpy as np
import pytest
from records import random_record, record_of

from faircl.fairness import RecordedClass, earlier_records, lost_pixels
from faircl.fairness.lost_pixels import KINDS

CLASSES = (
    RecordedClass(0, "background", background=True),
    RecordedClass(11, "road"),
    RecordedClass(12, "pavement", learned_at=1),
    RecordedClass(13, "kerb", learned_at=1),
    RecordedClass(14, "sign", learned_at=2),
)
NOTHING = dict.fromkeys(KINDS, 0.0)


def of(name, found):
    return next(one for one in found if one.name == name)


def test_by_hand():
    truth = [2] * 10 + [1, 1, 0, 0]
    guess = [2, 2, 0, 1, 1, 1, 3, 4, 4, 255, 1, 2, 0, 1]
    found = lost_pixels(record_of([(truth, guess)], CLASSES, step=2))
    assert [one.name for one in found] == ["background", "road", "pavement"]
    pavement = of("pavement", found)
    assert (pavement.id, pavement.pixels) == (12, 10)
    assert pavement.shares == {"itself": 20, "background": 10, "old": 30, "same": 10, "newer": 20, "none": 10}
    assert [(one.name, one.share) for one in pavement.receivers] == [("road", 30), ("sign", 20), ("background", 10)]
    assert pavement.receivers[0].change is None
    assert of("road", found).shares == NOTHING | {"itself": 50, "newer": 50}
    assert of("background", found).shares == NOTHING | {"itself": 50, "same": 50}
    assert len(of("pavement", lost_pixels(record_of([(truth, guess)], CLASSES), receivers=9)).receivers) == 5


def test_none_is_a_receiver():
    (found,) = lost_pixels(record_of([([1, 1], [255, 1])], CLASSES))
    assert [(one.id, one.name, one.share) for one in found.receivers] == [(-1, "none", 50)]


def test_change_since_an_earlier_step_with_fewer_classes_in_another_order():
    truth = np.array([2] * 10)
    earlier = (CLASSES[2], CLASSES[0], CLASSES[1])  # pavement, background, road
    before = record_of([([0] * 10, [0] * 8 + [1, 2])], earlier, step=1)
    now = record_of([(truth, [2, 2, 2, 1, 1, 1, 4, 4, 4, 4])], CLASSES, step=2)
    (found,) = lost_pixels(now, before)
    assert found.since == 1
    assert found.change == pytest.approx(NOTHING | {"itself": -50, "background": -10, "old": 20, "newer": 40})
    assert [(one.name, one.share, one.change) for one in found.receivers] == [("sign", 40, 40), ("road", 30, 20)]


def test_change_is_that_of_the_images_of_both():
    before = record_of([([2] * 4, [2] * 4), ([2] * 4, [0] * 4)], CLASSES, images=["a", "b"], step=1)
    now = record_of([([2] * 4, [1] * 4), ([2] * 4, [0] * 4)], CLASSES, images=["c", "b"], step=2)
    (found,) = lost_pixels(now, before)
    assert found.shares == NOTHING | {"background": 50, "old": 50}
    assert found.change == NOTHING
    assert found.receivers == ()


def test_a_class_that_was_not_there_has_no_change():
    before = record_of([([1], [1])], CLASSES[:2], step=0)
    road, sign = lost_pixels(record_of([([1, 4], [1, 4])], CLASSES, step=2), before)
    assert road.change == NOTHING
    assert (sign.change, sign.since) == (None, None)


def test_shares_against_a_plain_loop():
    record = random_record(images=6)
    record = replace(record, classes=tuple(c._replace(learned_at=c.id // 2) for c in record.classes))
    before = random_record(seed=1, images=6)
    for k, one in enumerate(lost_pixels(record, before)):
        shares = dict.fromkeys(KINDS, 0)
        image, truths, guesses, pixels = record.confusions
        for _, t, p, n in zip(*(c.tolist() for c in (image, truths, guesses, pixels)), strict=True):
            if t == k:
                kind = "itself" if p == k else "old" if p // 2 < k // 2 else "newer" if p // 2 > k // 2 else "same"
                shares[kind] += n
        assert one.shares == pytest.approx({kind: 100 * n / one.pixels for kind, n in shares.items()})
        assert sum(one.shares.values()) == pytest.approx(100)
        assert one.change is not None
        assert sum(one.change.values()) == pytest.approx(0, abs=1e-9)


def test_the_step_to_compare_with():
    def step(number, right):  # road is right in so many of ten pixels
        return record_of([([1] * 10, [1] * right + [0] * (10 - right))], CLASSES, step=number)

    records = [step(0, 6), step(1, 9), step(2, 9), step(3, 2)]
    assert earlier_records(records)[11].step == 1
    assert earlier_records(records[::-1], at="learned")[11].step == 0
    assert earlier_records(records[:1]) == {}
    assert lost_pixels(records[-1], earlier_records(records))[0].since == 1
    assert lost_pixels(records[-1], earlier_records(records, at="learned"))[0].change["itself"] == pytest.approx(-40)
    with pytest.raises(ValueError, match="'first'"):
        earlier_records(records, at="first")
