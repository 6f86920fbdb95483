"""What keeps runs from being comparable, and rows from being repeats."""

import json

import pytest
import yaml
from fake_run import make_run

from faircl.runs.comparability import comparison_obstacles, comparison_warnings, repeat_warnings
from faircl.runs.run import load_run


def run(path, config=None, scenario=None, **options):
    make_run(path, examples=0, **options)
    for name, changes, load, dump in (
        ("config.yaml", config, yaml.safe_load, yaml.safe_dump),
        ("scenario.json", scenario, json.loads, json.dumps),
    ):
        (path / name).write_text(dump(load((path / name).read_text()) | (changes or {})))
    return load_run(path)


def test_seeds_and_joint_training_are_comparable(tmp_path):
    runs = [run(tmp_path / "a"), run(tmp_path / "b", seed=1), run(tmp_path / "c", joint=True, scenario={"steps": [{}]})]
    assert comparison_warnings(runs) == comparison_obstacles(runs) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": {"model": {"name": "other"}}}, "different networks"),
        ({"scenario": {"steps": [{}] * 4}}, "has finished 3 of its 4 steps"),
        ({"scenario": {"shares": [{"leaked": 0.5}] * 3}}, "tested on images they have been trained on"),
    ],
)
def test_each_difference_is_one_warning(changes, words, tmp_path):
    (warning,) = comparison_warnings([run(tmp_path / "a"), run(tmp_path / "b", **changes)])
    assert words in warning


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ({"labels_sha256": "other"}, "differ in data"),
        ({"task": "other"}, "differ in task (2-2-1 and other)"),
        ({"setting": "other"}, "differ in setting (overlapped and other)"),
        ({"protocol": "clean"}, "differ in protocol (classes and clean)"),
    ],
)
def test_each_difference_is_one_obstacle(scenario, words, tmp_path):
    runs = [run(tmp_path / "a"), run(tmp_path / "b", seed=1), run(tmp_path / "c", scenario=scenario)]
    assert comparison_obstacles(runs) == [f"{tmp_path / 'a'} and {tmp_path / 'c'} {words}"]


def test_a_run_given_twice_is_an_obstacle(tmp_path):
    one = run(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert comparison_obstacles([one, load_run(tmp_path / "link")]) == [f"{tmp_path / 'a'} is given twice"]


def test_runs_of_the_same_settings_and_seed_are_named(tmp_path):
    one, copy, other = (run(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert repeat_warnings([("x", one), ("y", copy), ("x", other)]) == []
    (warning,) = repeat_warnings([("x", one), ("x", copy), ("x", other)])
    assert warning.startswith(f"{one.folder} and {copy.folder} of row x have the same settings and the same seed")


def test_rows_of_repeats(tmp_path):
    one, two, other = (
        run(tmp_path / str(seed), seed=seed, config={"train": {"workers": seed, "batch": batch}})
        for seed, batch in enumerate((4, 4, 8))
    )
    assert repeat_warnings([("x", one), ("x", two), ("y", other)]) == []
    assert repeat_warnings([("x", one), ("x", two), ("x", other)]) == [
        "the runs of row x differ in train.batch; give them labels of their own"
    ]
