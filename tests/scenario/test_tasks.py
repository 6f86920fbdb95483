import itertools

import pytest

from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.scenario import split_classes, step_sizes
from faircl.scenario.tasks import class_id, short_task


def numbered(count: int, background: bool = True) -> Classes:
    first = ("background",) if background else ()
    return Classes((*first, *(f"c{i}" for i in range(1, count + 1))), background)


FRUIT = Classes(("background", "apple", "pear", "plum", "fig"), background=True)


@pytest.mark.parametrize(
    ("task", "classes", "sizes"),
    [
        # PASCAL VOC, 20 classes besides background
        ("15-1", 20, [15, 1, 1, 1, 1, 1]),
        ("15-5", 20, [15, 5]),
        ("19-1", 20, [19, 1]),
        ("10-1", 20, [10] + [1] * 10),
        ("5-3", 20, [5, 3, 3, 3, 3, 3]),
        # ADE20K, 150
        ("100-50", 150, [100, 50]),
        ("100-10", 150, [100, 10, 10, 10, 10, 10]),
        ("100-5", 150, [100] + [5] * 10),
        ("50-50", 150, [50, 50, 50]),
        # others
        ("6-5", 11, [6, 5]),
        ("6-2-3", 11, [6, 2, 3]),
        ("1-1", 1 + 1, [1, 1]),
        ("offline", 20, [20]),
    ],
)
def test_sizes(task, classes, sizes):
    assert step_sizes(task, classes) == sizes
    steps = split_classes(task, None, numbered(classes))
    assert [len(step) for step in steps] == sizes
    assert list(itertools.chain(*steps)) == list(range(1, classes + 1))  # the data set's own order, background out


def test_voc_15_1_written_out():
    first, *later = split_classes("15-1", None, numbered(20))
    assert first == tuple(range(1, 16))
    assert later == [(16,), (17,), (18,), (19,), (20,)]


def test_without_background_ids_start_at_zero():
    assert split_classes("3-2", None, numbered(5, background=False)) == ((0, 1, 2), (3, 4))


@pytest.mark.parametrize("task", [[[2, 4], [1]], [["pear", "fig"], ["apple"]], [["pear", 4], [1]]])
def test_explicit_lists_by_id_and_name_may_leave_classes_out(task):
    assert split_classes(task, None, FRUIT) == ((2, 4), (1,))


def test_order_as_ids_names_and_both():
    expected = ((4, 1), (3,), (2,))
    for order in ([4, 1, 3, 2], ["fig", "apple", "plum", "pear"], ["fig", 1, "plum", 2]):
        assert split_classes("2-1", order, FRUIT) == expected


def test_random_order_is_a_permutation_that_depends_on_its_seed_alone():
    classes = numbered(20)
    once, again = (split_classes("15-1", "random:7", classes) for _ in range(2))
    assert once == again
    assert sorted(itertools.chain(*once)) == list(classes.foreground)
    assert len({split_classes("15-1", f"random:{seed}", classes) for seed in range(10)}) == 10
    # The order belongs to the classes, not to how they are cut.
    assert tuple(itertools.chain(*split_classes("15-5", "random:7", classes))) == tuple(itertools.chain(*once))


@pytest.mark.parametrize(
    ("task", "order", "words"),
    [
        ("15_1", None, ["Unknown task '15_1'", "'15-1'", "'offline'"]),
        ("", None, ["Unknown task ''"]),
        ("4", None, ["Unknown task '4'"]),
        ("-2-2", None, ["Unknown task '-2-2'"]),
        ("2-2\n", None, ["Unknown task"]),
        ("0-2", None, ["Task '0-2' has a step without classes", "at least 1"]),
        ("2-0", None, ["Task '2-0' has a step without classes"]),
        ("1-2", None, ["Task '1-2' does not divide 4 classes", "after the first 1, steps of 2 leave 1", "'1-2-1'"]),
        ("15-1", None, ["Task '15-1' has more classes than the data", "needs 16", "has 4 to learn"]),
        ("2-2-2", None, ["Task '2-2-2' has more classes than the data", "needs 6"]),
        ("1-1-1", None, ["Task '1-1-1' has fewer classes than the data", "needs 3", "has 4"]),
        ("2-1", "alphabetical", ["Unknown class order 'alphabetical'", "'random:SEED'"]),
        ("2-1", "random:-1", ["Unknown class order 'random:-1'"]),
        ("2-1", [1, 2, 3], ["scenario.order names 3 different classes in 3 entries", "each of the 4 classes"]),
        ("2-1", [1, 2, 3, 3], ["scenario.order names 3 different classes in 4 entries"]),
        ("2-1", ["apple", "pear", "plum", "figg"], ["Unknown class 'figg'. Did you mean 'fig'?", "Known: background"]),
        ([[1], [2]], [1, 2, 3, 4], ["scenario.order was given together with explicit class lists"]),
        ([[1, 2], [2, 3]], None, ["more than one place", "pear"]),
        ([[1, 1]], None, ["more than one place", "apple"]),
        ([[1], []], None, ["every step at least one class"]),
        ([], None, ["at least one step"]),
        ([[0, 1]], None, ["Class id 0 cannot be learned", "from 1 to 4"]),
        ([["background"]], None, ["Class id 0 cannot be learned"]),
        ([[5]], None, ["Class id 5 cannot be learned"]),
        ([[-1]], None, ["Class id -1 cannot be learned"]),
        ([["kiwi"]], None, ["Unknown class 'kiwi'.", "Known: background, apple, pear, plum, fig"]),
    ],
)
def test_errors_say_what_is_wrong(task, order, words):
    with pytest.raises(UserError) as caught:
        split_classes(task, order, FRUIT)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("task", ["offline", "1-1", [["background"]]])
def test_data_with_nothing_but_background_cannot_be_learned(task):
    with pytest.raises(UserError, match="besides background"):
        split_classes(task, None, Classes(("background",), background=True))


def test_a_name_wins_over_a_number_and_names_are_exact():
    classes = Classes(("background", "7", "Car", "car"), background=True)
    assert class_id("7", classes) == 1
    assert class_id("Car", classes) == 2
    assert class_id("car", classes) == 3


@pytest.mark.parametrize(
    ("task", "short"),
    [
        ("15-1", "15-1"),
        ("offline", "offline"),
        ('[["sky", 2], ["car"]]', "2-1 listed"),
        ("[broken", "[broken"),
        ("[1]", "[1]"),
    ],
)
def test_a_task_in_a_heading(task, short):
    assert short_task(task) == short
