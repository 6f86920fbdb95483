"""``faircl scenario show`` on generated trees of each layout, against plain loops over their masks.

The trees have masks and lists only, no image.
"""

import json

import numpy as np
import pytest
from trees import ade_tree, cityscapes_tree, voc_tree

from faircl.readers.catalog import CITYSCAPES_CITIES

SETTINGS = ("overlapped", "disjoint", "sequential")
TASKS = {
    "voc": ("19-1", "15-5", "15-1", "15-5s", "10-1", "5-3", "offline"),
    "ade": ("100-50", "100-10", "100-5", "50-50", "offline"),
    "cityscapes": ("14-5", "14-1", "13-6", "13-1", "10-9", "10-1", "offline"),
    "folder": ("3-2", "2-1", "2-1-2", "offline"),
}
CLASSES = {"voc": 20, "ade": 150, "cityscapes": 19, "folder": 5}
SIZES = {  # as published, spelled out
    ("voc", "19-1"): [19, 1],
    ("voc", "15-5"): [15, 5],
    ("voc", "15-1"): [15, 1, 1, 1, 1, 1],
    ("voc", "15-5s"): [15, 1, 1, 1, 1, 1],
    ("voc", "10-1"): [10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    ("voc", "5-3"): [5, 3, 3, 3, 3, 3],
    ("ade", "100-50"): [100, 50],
    ("ade", "100-10"): [100, 10, 10, 10, 10, 10],
    ("ade", "100-5"): [100, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
    ("ade", "50-50"): [50, 50, 50],
    ("cityscapes", "14-5"): [14, 5],
    ("cityscapes", "14-1"): [14, 1, 1, 1, 1, 1],
    ("cityscapes", "13-6"): [13, 6],
    ("cityscapes", "13-1"): [13, 1, 1, 1, 1, 1, 1],
    ("cityscapes", "10-9"): [10, 9],
    ("cityscapes", "10-1"): [10, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    ("folder", "3-2"): [3, 2],
    ("folder", "2-1"): [2, 1, 1, 1],
    ("folder", "2-1-2"): [2, 1, 2],
}
CASES = [(data, task, setting) for data, tasks in TASKS.items() for task in tasks for setting in SETTINGS]
LABEL_IDS = [7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33]  # of the 19 classes


def draw(rng, classes, background, ignore, prefix=""):
    """Masks by id: one with each class alone, many with a few, some with none."""
    first = int(background)
    ids = list(range(first, classes + first))
    shown = [[c] for c in ids] + [list(rng.choice(ids, rng.integers(1, 4), replace=False)) for _ in range(60)]
    shown += [[]] * (2 if background else 0)
    masks = {}
    for k, own in enumerate(shown):
        mask = rng.choice([*own, *([0] if background or not own else own)], (5, 7)).astype(np.uint8)
        mask[0, : len(own)] = own  # each at least once
        if ignore and k % 3 == 0:
            mask[-1, -2:] = 255
        masks[f"{prefix}{k:04d}"] = mask
    return masks


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Root of every tree, and its masks in class ids: (train, test)."""
    rng = np.random.default_rng(7)
    made = {}
    root = tmp_path_factory.mktemp("trees")
    train, test = draw(rng, 20, True, True, "a"), draw(rng, 20, True, True, "b")
    made["voc"] = voc_tree(root / "voc", {"val": test}, augmented=train, images=False), train, test
    train, test = draw(rng, 150, True, False), draw(rng, 150, True, False, "v")
    splits = {"training": train, "validation": test}
    made["ade"] = ade_tree(root / "ade", splits, images=False), train, test
    train, test = draw(rng, 19, False, True, "ulm/ulm_"), draw(rng, 19, False, True, "lindau/lindau_")
    table = np.zeros(256, np.uint8)  # ignored pixels are "unlabeled", 0, in labelIds
    table[: len(LABEL_IDS)] = LABEL_IDS
    stored = {split: {i: table[m] for i, m in masks.items()} for split, masks in (("train", train), ("val", test))}
    made["cityscapes"] = cityscapes_tree(root / "city", stored, images=False), train, test
    train, test = draw(rng, 5, True, True), draw(rng, 5, True, True)
    made["folder"] = folder_tree(root / "folder", {"train": train, "test": test}), train, test
    return made


def folder_tree(root, splits):
    from trees import save_palette

    for split, masks in splits.items():
        for id, mask in masks.items():
            save_palette(root / "masks" / split / f"{id}.png", mask)
    (root / "classes.txt").write_text("background\na\nb\nc\nd\ne\n")
    return root


def plain(data, task, setting, train, test, seen_only):
    """(classes, images, test images, hidden share) of every step, one mask and one class at a time."""
    background = data != "cityscapes"
    first = int(background)
    everything = list(range(first, CLASSES[data] + first))
    steps, learned = [], []
    for size in SIZES.get((data, task), [CLASSES[data]]):
        new = everything[len(learned) : len(learned) + size]
        learned = learned + new
        images = []
        for mask in train.values():
            shown = {int(v) for v in mask.ravel()} - {255} - ({0} if background else set())
            belongs = any(c in new for c in shown)
            if setting != "overlapped":
                belongs = belongs and all(c in learned for c in shown)
            if belongs:
                images.append(mask)
        labelled = learned if setting == "sequential" else new
        pixels = [int(v) for mask in images for v in mask.ravel() if v != 255]
        hidden = sum(1 for v in pixels if v not in labelled and not (background and v == 0))
        tested = [m for m in test.values() if not seen_only or any(int(v) in learned for v in m.ravel())]
        steps.append((new, len(images), len(tested), hidden / len(pixels)))
    return steps


@pytest.mark.parametrize(("data", "task", "setting"), CASES)
def test_every_task_and_setting(data, task, setting, trees, cli):
    root, train, test = trees[data]
    result = cli("scenario", "show", "--data", data, "--root", root, "--task", task, "--setting", setting, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    steps = [(s["classes"], s["images"], s["test_images"], s["hidden"]) for s in found["steps"]]
    expected = plain(data, task, setting, train, test, seen_only=False)
    assert [s[:3] for s in steps] == [s[:3] for s in expected]
    assert [s[3] for s in steps] == pytest.approx([s[3] for s in expected], abs=1e-12)
    assert all(s["leaked"] == 0 for s in found["steps"])
    assert len(found["sha256"]) == 64


@pytest.mark.parametrize("data", TASKS)
@pytest.mark.parametrize("convention", ["plop", "mib"])
def test_published_conventions_test_on_images_with_a_seen_class(data, convention, trees, cli):
    root, train, test = trees[data]
    task = TASKS[data][1]
    where = ("--data", data, "--root", root, "--task", task)
    found = json.loads(cli("scenario", "show", *where, "--convention", convention, "--json").out)
    expected = plain(data, task, "overlapped", train, test, seen_only=True)
    assert [s["test_images"] for s in found["steps"]] == [s[2] for s in expected]
    assert found["steps"][0]["test_images"] < len(test)


def test_digests_tell_scenarios_apart(trees, cli):
    def digest(*more, data="voc", task="15-1"):
        where = ("--data", data, "--root", trees[data][0], "--task", task)
        return json.loads(cli("scenario", "show", *where, *more, "--json").out)["sha256"]

    assert digest() == digest(task="15-5s")  # two names of one task
    others = {digest(), digest(task="15-5"), digest("--setting", "disjoint"), digest("--order", "random:1")}
    others |= {digest("--order", "random:2"), digest("--convention", "plop"), digest("--joint")}
    assert len(others) == 7


@pytest.mark.parametrize("protocol", ["plop", "clean"])
@pytest.mark.parametrize("task", ["11-5", "11-1", "1-1"])
@pytest.mark.parametrize("kind", ["labelIds", "labelTrainIds"])
def test_cities(protocol, task, kind, tmp_path, cli):
    counts = {city: 2 + 3 * (k % 4) for k, city in enumerate(CITYSCAPES_CITIES)}
    value = 7 if kind == "labelIds" else 0
    ids = {city: [f"{city}/{city}_{k:06d}_000019" for k in range(n)] for city, n in counts.items()}
    splits = {"train": CITYSCAPES_CITIES[:18], "val": CITYSCAPES_CITIES[18:]}
    masks = {s: {i: np.full((2, 3), value, np.uint8) for c in cities for i in ids[c]} for s, cities in splits.items()}
    root = cityscapes_tree(tmp_path, masks, kind, images=False)
    where = ("--data", "cityscapes", "--root", root, "--task", task, "--protocol", protocol)
    result = cli("scenario", "show", *where, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    sizes = {"11-5": [11, 5, 5], "11-1": [11] + [1] * 10, "1-1": [1] * 21}[task]
    pool = [id for split, cities in splits.items() for city in sorted(cities) for id in ids[city]]
    seen, trained, at = [], set(), 0
    for step, size in zip(found["steps"], sizes, strict=True):
        new = list(CITYSCAPES_CITIES[at : at + size])
        at, seen = at + size, seen + new
        assert step["domains"] == new
        assert step["classes"] == list(range(19))
        if protocol == "plop":
            own = [id for id in pool if id.split("/")[0] in new]
            np.random.RandomState(1).shuffle(own)
            tested = [id for id in pool if id.split("/")[0] in seen]
            np.random.RandomState(1).shuffle(tested)
            own, tested = own[: int(0.8 * len(own))], tested[int(0.8 * len(tested)) :]
            trained |= set(own)
            assert (step["images"], step["test_images"]) == (len(own), len(tested))
            assert step["leaked"] == len(trained & set(tested)) / len(tested)
        else:
            assert step["images"] == sum(int(0.8 * counts[city]) for city in new)
            assert step["test_images"] == sum(counts[city] - int(0.8 * counts[city]) for city in seen)
            assert step["leaked"] == 0
    if protocol == "plop":
        assert found["steps"][-1]["leaked"] > 0.3
        table = cli("scenario", "show", *where)
        assert "warning: up to" in table.out


def test_a_task_published_by_city_asks_for_its_protocol(trees, cli):
    where = ("scenario", "show", "--data", "cityscapes", "--root", trees["cityscapes"][0], "--task")
    result = cli(*where, "11-1")
    assert result.code == 2
    assert "published by domain" in result.err
    assert cli(*where, "11-1", "--protocol", "classes").code == 0
