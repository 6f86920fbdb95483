"""The sha256 that proves which scenario a run had, and its JSON form."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.scenario import Scenario, build_scenario

PIXELS = np.array([[5, 9, 0, 0], [5, 0, 9, 0], [5, 0, 0, 9], [5, 9, 9, 0]])


def make(
    *,
    split=((1, 2), (3,)),
    ids="abcd",
    test_ids="xy",
    pixels=PIXELS,
    names="0123",
    task="2-1",
    setting="overlapped",
    joint=False,
):
    train = LabelIndex(tuple(ids), np.asarray(pixels, np.int64))
    test = LabelIndex(tuple(test_ids), np.asarray(pixels[: len(test_ids)], np.int64))
    return build_scenario(Classes(tuple(names), True), split, train, test, task=task, setting=setting, joint=joint)


def changed_pixel() -> np.ndarray:
    pixels = PIXELS.copy()
    pixels[0, 1] += 1
    return pixels


@pytest.mark.parametrize(
    "change",
    [
        {"ids": "abce"},
        {"test_ids": "xz"},
        {"split": ((2, 1), (3,))},
        {"split": ((1,), (2, 3))},
        {"pixels": changed_pixel()},
        {"names": "012x"},
        {"task": "other"},
        {"setting": "disjoint"},
        {"joint": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_changes_the_digest(change):
    assert make(**change).sha256 != make().sha256


def test_a_moved_pixel_count_changes_the_digest_even_if_totals_stay():
    pixels = PIXELS.copy()
    pixels[0, 1] -= 1
    pixels[3, 1] += 1
    assert make(pixels=pixels).pixels == make().pixels
    assert make(pixels=pixels).sha256 != make().sha256


def test_equal_scenarios_have_equal_digests_whatever_the_integer_type():
    assert make().sha256 == make().sha256 == make(pixels=PIXELS.astype(np.int32)).sha256


def test_digest_does_not_depend_on_the_process():
    code = """if True:
        import numpy as np
        from faircl.data.label_index import index_labels
        from faircl.readers.scenes import SceneData
        from faircl.scenario import Scenario, build_scenario
        data = SceneData(20, 4, 32)
        train, test = (index_labels(data, split) for split in ("train", "test"))
        print(build_scenario(data.classes, ((1, 2), (3,)), train, test, task="2-1").sha256)
    """
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(found[0].strip()) == 64


def test_json_round_trip_and_recomputed_digest():
    scenario = make()
    saved = json.loads(json.dumps(scenario.to_json(), indent=1))
    assert saved == scenario.to_json()
    digest = saved.pop("sha256")
    assert len(saved.pop("shares")) == 2  # these follow from the rest, or change no label
    assert saved.pop("background_absent") is False
    assert saved.pop("colours") == []
    canonical = json.dumps(saved, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert hashlib.sha256(canonical.encode()).hexdigest() == digest == scenario.sha256


def test_json_says_everything():
    assert {k: v for k, v in make(split=((3, 1), (2,))).to_json().items() if "sha256" not in k} == {
        "task": "2-1",
        "setting": "overlapped",
        "protocol": "classes",
        "background": True,
        "background_is_named": True,
        "names": ["0", "1", "2", "3"],
        "classes": [
            {"id": 0, "name": "0", "step": 0, "pixels": 20},
            {"id": 3, "name": "3", "step": 0, "pixels": 9},
            {"id": 1, "name": "1", "step": 0, "pixels": 18},
            {"id": 2, "name": "2", "step": 1, "pixels": 18},
        ],
        "steps": [
            {"classes": [3, 1], "domains": [], "train": ["a", "c", "d"], "test": ["x", "y"]},
            {"classes": [2], "domains": [], "train": ["b", "d"], "test": ["x", "y"]},
        ],
        "shares": [{"leaked": 0.0, "hidden": 9 / 51}, {"leaked": 0.0, "hidden": 9 / 37}],
        "background_absent": False,
        "colours": [],
    }


def test_from_json_gives_the_scenario_back():
    made = make(split=((3, 1), (2,)))
    for one in (made, replace(made, earlier_steps=2)):
        assert Scenario.from_json(json.loads(json.dumps(one.to_json()))) == one
        assert one.sha256 == made.sha256  # it changes no label
        assert one.seed_step(1) == one.earlier_steps + 1
