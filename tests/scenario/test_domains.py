"""Domain protocols: the published order and shuffles, the clean split, what leaks."""

import numpy as np
import pytest

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.labels import UNLABELLED
from faircl.readers.catalog import CITYSCAPES_CITIES
from faircl.scenario.domain_steps import build_domain_scenario
from faircl.scenario.tasks import split_domains

# Finely annotated images of each city, train and val.
TRAIN = {
    "aachen": 174, "bochum": 96, "bremen": 316, "cologne": 154, "darmstadt": 85, "dusseldorf": 221, "erfurt": 109,
    "hamburg": 248, "hanover": 196, "jena": 119, "krefeld": 99, "monchengladbach": 94, "strasbourg": 365,
    "stuttgart": 196, "tubingen": 144, "ulm": 95, "weimar": 142, "zurich": 122,
}  # fmt: skip
VAL = {"frankfurt": 267, "lindau": 59, "munster": 174}
CLASSES = Classes(("a", "b"), background=False)


def pool(counts):
    ids = tuple(f"{city}/{city}_{k:06d}" for city, count in counts.items() for k in range(count))
    index = LabelIndex(ids, np.ones((len(ids), 2), np.int64), files=tuple(ids))
    return index, [id.split("/")[0] for id in ids]


def build(counts, task, protocol, seed=0, joint=False, order=CITYSCAPES_CITIES):
    index, domains = pool(counts)
    groups = split_domains(task, None, [city for city in order if city in counts])
    return build_domain_scenario(CLASSES, groups, index, domains, task=task, protocol=protocol, seed=seed, joint=joint)


def plain_plop(counts, order, sizes):
    """The protocol as published, with Python's loops and sets: (train, test) of every step."""
    everything = [f"{city}/{city}_{k:06d}" for city, count in counts.items() for k in range(count)]
    seen, steps, at = [], [], 0
    for size in sizes:
        new = order[at : at + size]
        at += size
        seen += new
        own = [id for id in everything if id.split("/")[0] in new]
        np.random.RandomState(1).shuffle(own)
        all_so_far = [id for id in everything if id.split("/")[0] in seen]
        np.random.RandomState(1).shuffle(all_so_far)
        steps.append((own[: int(0.8 * len(own))], all_so_far[int(0.8 * len(all_so_far)) :]))
    return steps


@pytest.mark.parametrize(
    ("task", "sizes", "leaked"),
    [("11-5", [11, 5, 5], 0.714), ("11-1", [11] + [1] * 10, 0.721), ("1-1", [1] * 21, 0.778)],
)
def test_the_published_protocol_on_the_real_numbers_of_images(task, sizes, leaked):
    counts = TRAIN | VAL
    scenario = build(counts, task, "plop")
    expected = plain_plop(counts, list(CITYSCAPES_CITIES), sizes)
    assert [(list(s.images), list(s.test_images)) for s in scenario.steps] == expected
    trained = set()
    for step, (train, test) in zip(scenario.steps, expected, strict=True):
        trained |= set(train)
        assert step.leaked == len(trained & set(test)) / len(test)
    assert len(scenario.steps[-1].test_images) == 695  # as the published logs say
    assert scenario.steps[0].leaked == 0
    assert scenario.steps[-1].leaked == pytest.approx(leaked, abs=0.0006)
    assert [len(step.domains) for step in scenario.steps] == sizes


def test_the_published_joint_training_leaks_nothing():
    scenario = build(TRAIN | VAL, "11-5", "plop", joint=True)
    (step,) = scenario.steps
    assert (len(step.images), len(step.test_images), step.leaked) == (2780, 695, 0)


def test_shuffling_a_list_and_its_numbers_is_the_same():
    words = [str(k) for k in range(1000)]
    state = np.random.RandomState(1)
    state.shuffle(words)
    assert [int(word) for word in words] == np.random.RandomState(1).permutation(1000).tolist()


@pytest.mark.parametrize("task", ["11-5", "11-1", "1-1", "offline"])
def test_the_clean_protocol_splits_every_city_once(task):
    counts = TRAIN | VAL
    scenario = build(counts, task, "clean")
    trained = [id for step in scenario.steps for id in step.images]
    last = scenario.steps[-1].test_images
    assert len(set(trained)) == len(trained)
    assert not set(trained) & set(last)
    assert sorted([*trained, *last]) == sorted(pool(counts)[0].ids)
    for city, count in counts.items():
        assert sum(id.startswith(f"{city}/") for id in trained) == int(0.8 * count)
    for t, step in enumerate(scenario.steps):
        so_far = {city for s in scenario.steps[: t + 1] for city in s.domains}
        assert list(step.test_images) == [id for id in last if id.split("/")[0] in so_far]
        assert step.leaked == 0


def test_the_clean_split_depends_on_its_seed_and_on_nothing_else():
    counts = {"a": 10, "b": 20, "c": 5}
    first = build(counts, "1-1", "clean", order="abc").steps
    again = build(counts, "1-2", "clean", order="cba").steps  # another task and order
    other = build(counts, "1-1", "clean", seed=1, order="abc").steps
    assert {id for s in first for id in s.images} == {id for s in again for id in s.images}
    assert {id for s in first for id in s.images} != {id for s in other for id in s.images}


def test_every_step_labels_every_class():
    scenario = build({"a": 4, "b": 6}, "1-1", "clean", order="ab")
    assert [step.classes for step in scenario.steps] == [(0, 1), ()]
    assert [scenario.channels(t) for t in (-1, 0, 1)] == [0, 2, 2]
    for t in (0, 1):
        assert scenario.train_table(t)[:3].tolist() == [0, 1, 65535]
        assert scenario.test_table(t)[:3].tolist() == [0, 1, 65535]
        assert scenario.steps[t].hidden == 0
    assert scenario.unlabelled == UNLABELLED
    with_background = build_domain_scenario(
        Classes(("background", "a"), True), (("a",), ("b",)), *pool({"a": 4, "b": 6}), task="1-1", protocol="clean"
    )
    assert with_background.train_table(1)[:3].tolist() == [0, 1, 65535]
    assert with_background.unlabelled == UNLABELLED  # background is what it says
    assert with_background.channel_ids == (0, 1)


def test_training_pixels_are_those_of_training_images():
    scenario = build({"a": 10, "b": 10, "c": 10}, [["a"], ["b"]], "clean", order="abc")
    assert scenario.pixels == (16, 16)  # one pixel of each class in each of 8 + 8 images; c is never trained on


def test_too_few_images():
    with pytest.raises(UserError, match=r"Step 1 \(b\) has no training image: protocol plop keeps 80%"):
        build({"a": 5, "b": 1}, "1-1", "plop", order="ab")
    with pytest.raises(UserError, match=r"Step 0 \(b\) has no test image"):
        build({"a": 5, "b": 1}, "1-1", "clean", order="ba")
    assert build({"a": 5, "b": 1}, "1-1", "clean", order="ab").steps[1].images == ("b/b_000000",)


def test_orders_and_lists_of_domains():
    cities = list("dacb")
    assert split_domains("2-1", None, cities) == (("d", "a"), ("c",), ("b",))
    assert split_domains([["a"], ["b", "d"]], None, cities) == (("a",), ("b", "d"))
    assert split_domains("3-1", list("abcd"), cities) == (("a", "b", "c"), ("d",))
    shuffled = split_domains("1-1", "random:3", cities)
    assert sorted(name for step in shuffled for name in step) == sorted(cities)
    assert shuffled == split_domains("1-1", "random:3", cities)
    assert len({split_domains("1-1", f"random:{seed}", cities) for seed in range(9)}) > 3
    for task, order, message in (
        ("5-1", None, "has more domains than the data: it needs 6, the data has 4"),
        ("1-2", None, "does not divide 4 domains"),
        ([["a"], ["e"]], None, "Unknown domain 'e'"),
        ([["a"], ["a"]], None, "more than one place of the task: a"),
        ([["a"], []], None, "at least one domain"),
        ("1-1", list("abc"), "expected each of the 4 domains exactly once"),
        ("1-1", "sorted", "Unknown domain order 'sorted'"),
        ([["a"]], list("abcd"), "explicit lists"),
    ):
        with pytest.raises(UserError, match=message):
            split_domains(task, order, cities)


def test_leaks_are_found_by_the_file_and_not_by_the_name():
    from faircl.scenario import build_scenario

    pixels = np.array([[1, 5], [1, 5], [1, 5], [1, 5]])
    train = LabelIndex(("a", "b", "c", "d"), pixels, files=(1, 2, 3, 4))
    test = LabelIndex(("a", "x", "y", "z"), pixels, files=(11, 3, 12, 4))
    scenario = build_scenario(Classes(("background", "k"), True), ((1,),), train, test, task="offline")
    assert scenario.steps[0].leaked == 0.5  # x is c and z is d; the two a are different files
