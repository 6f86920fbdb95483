"""The sentences of a report, against hand-made runs whose numbers are known."""

import math

import numpy as np
import pytest
import torch
from records import record_of

from faircl.fairness.lost_pixels import lost_pixels
from faircl.fairness.record import RecordedClass
from faircl.metrics import summarise
from faircl.report.numbers import enumerated
from faircl.report.run_rows import headline
from faircl.report.run_view import RunView, StepView
from faircl.report.story import destination, largest_drop, told
from faircl.runs.run import Run

NAMES = ("road", "pedestrian", "bicyclist", "sign")
LEARNED = (0, 0, 0, 1)


def masks(rows):
    """Truth and prediction of one image: for every true class how many pixels of each predicted one."""
    pairs = [(t, p) for t, row in enumerate(rows) for p, count in enumerate(row) for _ in range(count)]
    truth, guess = np.array(pairs).T
    return truth[None], guess[None]


def step_of(rows, step, record=True):
    known = len(rows)
    table = [RecordedClass(k, NAMES[k], LEARNED[k]) for k in range(known)]
    about = {"ids": list(range(known)), "names": NAMES[:known], "learned_at": LEARNED[:known]}
    metrics = summarise(torch.tensor(rows), **about, step=step, background=False)
    return StepView(metrics, record_of([masks(rows)] * 2, table, step=step) if record else None)


def view_of(*steps, planned=2, tmp_path="run"):
    run = Run(
        folder=tmp_path,
        config_tree={"model": {"name": "tiny"}, "method": {"name": "mib"}},
        config_text="",
        environment={},
        scenario_tree={"steps": [{}] * planned},
        steps=tuple(one.metrics for one in steps),
        images_per_second={},
        training=(),
    )
    run.__dict__["adopted"] = ""
    classes = sorted(steps[-1].metrics.classes, key=lambda c: -c.pixels)
    return RunView(run, tuple(steps), tuple(classes))


# bicyclist has IoU 50 after step 0 and 25 after step 1: 75 of its 100 pixels are lost, 60 of them to pedestrian.
BEFORE = [[400, 0, 0], [0, 200, 0], [0, 50, 50]]
RIGHT = [[400, 0, 0, 0], [0, 200, 0, 0], [0, 0, 100, 0], [0, 0, 0, 40]]
AFTER = [[400, 0, 0, 0], [0, 200, 0, 0], [5, 60, 25, 10], [0, 0, 0, 40]]


def test_the_worst_class_what_it_lost_when_and_to_whom():
    said = told(view_of(step_of(BEFORE, 0), step_of(AFTER, 1)))
    worst = "bicyclist is served worst: 25 of 100; it lost 25 points when sign was learned; "
    assert said[1] == worst + "most of its pixels, 60\N{NO-BREAK SPACE}%, went to pedestrian."


def test_classes_that_share_the_last_place():
    rows = [[400, 0, 0, 0], [200, 0, 0, 0], [100, 0, 0, 0], [0, 0, 0, 40]]
    view = view_of(step_of(BEFORE, 0), step_of(rows, 1))
    said = told(view)
    (card,) = (card for card in headline(view) if card.name == "Worst: pedestrian")
    assert card.note.startswith("IoU of the worst class and of 1 other;")
    assert said[1].startswith("pedestrian is served worst, as is bicyclist: 0 of 100; it lost 80 points when sign was")


def test_accuracy_forgetting_and_thirds():
    said = told(view_of(step_of(BEFORE, 0), step_of(AFTER, 1)))
    ious = [400 / 405, 200 / 260, 0.25, 40 / 50]
    mean = 100 * sum(ious) / 4
    assert said[0].startswith(f"mib with tiny, trained in 2 steps, segments 4 classes with a mean IoU of {mean:.1f}")
    assert f"a standard deviation of {100 * np.std(ious):.1f}\N{NO-BREAK SPACE}points between the classes" in said[0]
    assert "on 2 test images" in said[0]
    lost = [100 - 100 * ious[0], 100 * (200 / 250) - 100 * ious[1], 50 - 25]
    text = f"the old classes have lost {np.mean(lost):.1f}\N{NO-BREAK SPACE}points on average"
    assert f"Compared with their best earlier step, {text}; bicyclist lost most, 25.0\N{NO-BREAK SPACE}points." in said
    assert any(line.startswith("The rarest third of the classes reaches 80.0") for line in said)
    assert "Scored by the convention full." in said


def test_wrong_pixels_of_old_classes_together():
    """75 pixels of old classes are wrong: 65 went to classes learned before or with them, 10 to sign."""
    said = told(view_of(step_of(BEFORE, 0), step_of(AFTER, 1)))
    wanted = "87 % went to classes learned before or with them and 13 % went to classes learned later"
    assert f"Of the wrong pixels of the old classes, {wanted}.".replace(" %", "\N{NO-BREAK SPACE}%") in said


def test_without_records_nothing_is_said_about_pixels_and_intervals():
    said = told(view_of(step_of(BEFORE, 0, record=False), step_of(AFTER, 1, record=False)))
    assert said[1] == "bicyclist is served worst: 25 of 100; it lost 25 points when sign was learned."
    assert not any("interval" in line or "wrong pixels" in line or "went to" in line for line in said)


def test_forgetting_below_zero_is_a_gain():
    view = view_of(step_of(BEFORE, 0), step_of(RIGHT, 1))
    gained = np.mean([0, 20, 50])
    text = f"the old classes have gained {gained:.1f}\N{NO-BREAK SPACE}points on average."
    assert f"Compared with their best earlier step, {text}" in told(view)
    cards = {card.name: card for card in headline(view)}
    assert cards["Forgetting"].value == f"\N{MINUS SIGN}{gained:.1f}"
    assert cards["Forgetting"].note.endswith("; below zero, they gained")


def test_one_class_has_no_worst_no_spread_and_no_thirds():
    view = view_of(step_of([[9]], 0), planned=1)
    assert told(view)[1:] == ["Scored by the convention full."]
    assert told(view)[0].endswith("segments 1 class with a mean IoU of 100.0\N{NO-BREAK SPACE}% (on 2 test images).")
    assert [(card.name, card.note) for card in headline(view)][:1] == [("Mean IoU", "over 1 class")]
    assert not any(card.name.startswith("Worst") for card in headline(view))


def test_an_unfinished_and_an_unevaluated_run():
    assert "trained in 1 of 4 steps" in told(view_of(step_of(BEFORE, 0), planned=4))[0]
    empty = view_of(step_of([[0, 0, 0]] * 3, 0, record=False), planned=1)
    assert headline(empty) == []
    assert told(empty) == [
        "mib with tiny, trained in 1 step, segments 3 classes.",
        "It was not evaluated: no labelled images were given.",
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ([0, 0, 100, 0], ""),
        ([91, 0, 9, 0], "most of its pixels, 91 %, went to road"),
        ([30, 5, 60, 5], "most of its lost pixels went to road, 30 % of all"),
        ([20, 15, 50, 15], "its lost pixels went to road (20 %), pedestrian (15 %) and sign (15 %)"),
    ],
)
def test_destinations(row, text):
    one = step_of([AFTER[0], AFTER[1], row, AFTER[3]], 1)
    found = {flow.id: flow for flow in lost_pixels(one.record)}[2]
    assert destination(found) == text.replace(" %", "\N{NO-BREAK SPACE}%")


def test_pixels_without_a_class():
    record = record_of([(np.zeros((1, 10), int), np.array([[0] * 4 + [255] * 6]))], [RecordedClass(0, "road")])
    assert destination(lost_pixels(record)[0]) == "most of its pixels, 60\N{NO-BREAK SPACE}%, went to no class"


def test_small_and_unknown_drops_are_not_told():
    steady = view_of(step_of(BEFORE, 0), step_of([[*row, 0] for row in BEFORE] + [[0, 0, 0, 9]], 1))
    assert largest_drop(steady, steady.final.classes[2]) == ""
    assert largest_drop(steady, steady.final.classes[3]) == ""  # new
    assert math.isnan(steady.steps[0].iou(3))


def test_enumerations():
    assert [enumerated(list("abcde"[:n])) for n in (1, 2, 3, 5)] == ["a", "a and b", "a, b and c", "a, b, c and 2 more"]
