"""Transfer over steps, by hand."""

import math
from types import SimpleNamespace

import pytest
from records import record_of

from faircl.fairness import RecordedClass, transfer
from faircl.metrics import forgetting

NAMES, LEARNED = ["background", "cat", "dog", "eel"], [0, 0, 1, 2]


def step(number, ious):
    classes = [
        SimpleNamespace(id=k, name=NAMES[k], iou=iou, learned_at=LEARNED[k], pixels=int(iou == iou))
        for k, iou in enumerate(ious)
    ]
    return SimpleNamespace(step=number, classes=classes, background=True)


STEPS = [step(0, [90, 80]), step(1, [92, 60, 50]), step(2, [85, 70, 55, 40])]


def test_by_hand():
    found = transfer(STEPS, joint=step(2, [91, 82, 75, 64]), alone=[step(0, [99, 99, 45]), step(0, [0, 0, 0, 30])])
    _, cat, dog, eel = found.classes
    assert (cat.forgetting, cat.backward) == (10, -10)
    assert (dog.forgetting, dog.backward, dog.plasticity, dog.intransigence, dog.forward) == (-5, 5, 50, 25, 5)
    assert (eel.plasticity, eel.intransigence, eel.forward) == (40, 24, 10)
    assert math.isnan(eel.forgetting)
    assert math.isnan(cat.plasticity)  # of the first step: nothing was there before
    assert found.forgetting == pytest.approx((7 + 10 - 5) / 3)
    assert found.backward == pytest.approx((-5 - 10 + 5) / 3)
    assert (found.plasticity, found.intransigence, found.forward) == (45, 24.5, 7.5)


def test_not_defined_without_a_reference():
    found = transfer(STEPS[::-1])
    assert math.isnan(found.forward)
    assert math.isnan(found.intransigence)
    assert found.plasticity == 45
    assert found.to_json()["forward"] is None


def test_one_step_has_nothing_to_compare():
    found = transfer(STEPS[:1])
    assert all(math.isnan(value) for value in (found.forgetting, found.backward, found.plasticity))
    with pytest.raises(ValueError, match="at least one"):
        transfer([])


def test_a_class_absent_at_its_own_step():
    found = transfer([step(0, [90, math.nan]), step(1, [90, 30, 20])])
    assert math.isnan(found.classes[1].forgetting)
    assert math.isnan(found.classes[1].backward)


def test_forgetting_is_that_of_the_metrics():
    found = transfer(STEPS)
    assert {c.name: c.forgetting for c in found.classes} == pytest.approx(forgetting(STEPS).classes, nan_ok=True)


def test_from_records():
    classes = (RecordedClass(0, "cat"), RecordedClass(1, "dog", learned_at=1))
    first = record_of([([0] * 10, [0] * 8 + [255] * 2)], classes[:1], step=0)
    second = record_of([([0] * 10 + [1] * 10, [0] * 5 + [255] * 5 + [1] * 4 + [255] * 6)], classes, step=1)
    found = transfer([first, second], joint=second)
    assert (found.forgetting, found.backward, found.plasticity) == pytest.approx((30, -30, 40))
    assert found.intransigence == 0
