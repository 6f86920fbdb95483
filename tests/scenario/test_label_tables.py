"""Labels of every step on hand-made 4×4 masks, written out by hand."""

import numpy as np
import pytest

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.labels import IGNORE, UNLABELLED, apply_table
from faircl.scenario import Scenario, build_scenario

V = 255  # the ignore value of an 8-bit mask
I = IGNORE  # noqa: E741
U = UNLABELLED

RAW = np.array([[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 0, V], [1, 2, 3, 4]], np.uint8)


def scenario(split, setting="overlapped", background=True, joint=False, classes=5) -> Scenario:
    names = tuple(f"c{i}" for i in range(classes))
    # One image for every class, which shows that class alone, so that no setting leaves a step empty.
    ids = tuple(f"i{i}" for i in range(classes))
    index = LabelIndex(ids, np.eye(classes, dtype=np.int64) * 9)
    task = str([list(step) for step in split])
    return build_scenario(Classes(names, background), split, index, index, task=task, setting=setting, joint=joint)


def check(table, expected, raw=RAW):
    labels = apply_table(table, raw)
    assert labels.dtype == np.uint16
    np.testing.assert_array_equal(labels, np.array(expected))


@pytest.mark.parametrize("setting", ["overlapped", "disjoint"])
def test_only_the_classes_of_the_step_are_labelled(setting):
    s = scenario(((1, 2), (3,), (4,)), setting)
    check(s.train_table(0), [[0, 0, 1, 1], [2, 2, 0, 0], [0, 0, 0, I], [1, 2, 0, 0]])
    check(s.train_table(1), [[0, 0, 0, 0], [0, 0, 3, 3], [0, 0, 0, I], [0, 0, 3, 0]])
    check(s.train_table(2), [[0, 0, 0, 0], [0, 0, 0, 0], [4, 4, 0, I], [0, 0, 0, 4]])


def test_sequential_keeps_old_classes():
    s = scenario(((1, 2), (3,), (4,)), "sequential")
    check(s.train_table(0), [[0, 0, 1, 1], [2, 2, 0, 0], [0, 0, 0, I], [1, 2, 0, 0]])
    check(s.train_table(1), [[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 0, I], [1, 2, 3, 0]])
    check(s.train_table(2), [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 0, I], [1, 2, 3, 4]])


@pytest.mark.parametrize("setting", ["overlapped", "disjoint", "sequential"])
def test_evaluation_knows_every_class_seen_and_calls_the_rest_background(setting):
    s = scenario(((1, 2), (3,), (4,)), setting)
    check(s.test_table(0), [[0, 0, 1, 1], [2, 2, 0, 0], [0, 0, 0, I], [1, 2, 0, 0]])
    check(s.test_table(1), [[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 0, I], [1, 2, 3, 0]])
    check(s.test_table(2), [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 0, I], [1, 2, 3, 4]])


def test_channels_follow_the_order_of_learning_not_the_ids():
    s = scenario(((4, 1), (3,), (2,)))
    assert s.channel_ids == (0, 4, 1, 3, 2)
    assert s.names == ("c0", "c4", "c1", "c3", "c2")
    assert [s.channels(t) for t in range(-1, 3)] == [0, 3, 4, 5]
    check(s.train_table(0), [[0, 0, 2, 2], [0, 0, 0, 0], [1, 1, 0, I], [2, 0, 0, 1]])
    check(s.train_table(2), [[0, 0, 0, 0], [4, 4, 0, 0], [0, 0, 0, I], [0, 4, 0, 0]])
    check(s.test_table(2), [[0, 0, 2, 2], [4, 4, 3, 3], [1, 1, 0, I], [2, 4, 3, 1]])


def test_without_background_others_are_unlabelled_in_training_and_ignored_in_evaluation():
    s = scenario(((3, 0), (1,), (4, 2)), background=False)
    assert s.channel_ids == (3, 0, 1, 4, 2)
    assert [s.channels(t) for t in range(-1, 3)] == [0, 2, 3, 5]
    assert s.unlabelled == U
    check(s.train_table(0), [[1, 1, U, U], [U, U, 0, 0], [U, U, 1, I], [U, U, 0, U]])
    check(s.train_table(1), [[U, U, 2, 2], [U, U, U, U], [U, U, U, I], [2, U, U, U]])
    check(s.train_table(2), [[U, U, U, U], [4, 4, U, U], [3, 3, U, I], [U, 4, U, 3]])
    check(s.test_table(0), [[1, 1, I, I], [I, I, 0, 0], [I, I, 1, I], [I, I, 0, I]])
    check(s.test_table(2), [[1, 1, 2, 2], [4, 4, 0, 0], [3, 3, 1, I], [2, 4, 0, 3]])


def test_a_class_that_no_step_learns_is_background():
    s = scenario(((1,), (4,)))
    assert s.channels(1) == 3
    check(s.train_table(1), [[0, 0, 0, 0], [0, 0, 0, 0], [2, 2, 0, I], [0, 0, 0, 2]])
    check(s.test_table(1), [[0, 0, 1, 1], [0, 0, 0, 0], [2, 2, 0, I], [1, 0, 0, 2]])


def test_joint_has_all_labels_in_one_step_but_remembers_the_task():
    s = scenario(((1, 2), (3,), (4,)), joint=True)
    assert len(s.steps) == 1
    assert s.learned_at == (0, 0, 0, 1, 2)
    everything = [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 0, I], [1, 2, 3, 4]]
    check(s.train_table(0), everything)
    check(s.test_table(0), everything)


def test_255_in_a_small_mask_is_void_and_in_a_wide_one_a_class():
    small = scenario((tuple(range(1, 254)),), classes=254)
    assert small.train_table(0).shape == (256,)
    check(small.train_table(0), [[253, I, I]], np.array([[253, 254, V]], np.uint8))

    wide = scenario((tuple(range(1, 200)), tuple(range(200, 300))), classes=300)
    raw = np.array([[0, 199, 200], [255, 299, 65535]], np.uint16)
    assert wide.train_table(0).shape == (65536,)
    check(wide.train_table(0), [[0, 199, 0], [0, 0, I]], raw)
    check(wide.train_table(1), [[0, 0, 200], [255, 299, I]], raw)
    check(wide.test_table(1), [[0, 199, 200], [255, 299, I]], raw)


def test_255_classes_need_the_wide_table():
    wide = scenario((tuple(range(1, 255)),), classes=255)
    assert len(wide.train_table(0)) == 65536
    check(wide.train_table(0), [[254, I, I]], np.array([[254, 255, 65535]], np.uint16))


def test_a_table_agrees_with_a_plain_loop():
    s = scenario(((4, 1), (3,), (2,)), "sequential")
    for step in range(3):
        seen = [0, *(i for part in s.steps[: step + 1] for i in part.classes)]
        table = s.train_table(step)
        for raw in range(256):
            expected = I if raw >= 5 else seen.index(raw) if raw in seen else 0
            assert table[raw] == expected
