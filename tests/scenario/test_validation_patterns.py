"""Validation images that are chosen by name: splits, and patterns of training ids that no step trains on."""

import json

import pytest
from validation_data import TEST, indexed, make, three_cities

from faircl.config.run import parse_data
from faircl.errors import UserError
from faircl.scenario import make_scenario
from faircl.scenario.validation import matching_ids

DRIVES = {f"{drive}_{k}": [0, 1 + k % 3] for drive in ("north", "south", "west") for k in range(6)}
VALIDATION = {"v1": [0, 1], "v2": [3, 3]}


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path / "data", {"train": DRIVES, "test": TEST, "val": VALIDATION})


def test_patterns_match_whole_ids_across_folders():
    ids = ("a/1", "a/2", "b/1", "b/x/1", "A/1")
    assert matching_ids(ids, ["b/*"]) == ("b/1", "b/x/1")
    assert matching_ids(ids, ["*/1"]) == ("a/1", "b/1", "b/x/1", "A/1")
    assert matching_ids(ids, ["a/?", "b/[x]/*"]) == ("a/1", "a/2", "b/x/1")
    assert matching_ids(ids, []) == ()


@pytest.mark.parametrize("value", ["south_*", "[south_*]", "['south_*', '[s]outh_?']"])
def test_matched_images_are_nowhere_in_training(value, folder, silent):
    plain, _ = indexed(folder, silent)
    made, reporter = indexed(folder, silent, f"data.validation={value}")
    held_out = {id for id in DRIVES if id.startswith("south")}
    assert set(made.scenario.validation) == held_out
    assert not held_out & set(made.train.ids)
    for before, now in zip(plain.scenario.steps, made.scenario.steps, strict=True):
        assert now.images == tuple(id for id in before.images if id not in held_out)
    assert (made.splits.validation, made.validation.split) == ("train", "train")
    assert reporter.said == []


def test_a_split_together_with_training_images(folder, silent):
    """A joined split of both holds them; each image is read from where it lies."""
    made, reporter = indexed(folder, silent, "data.validation=[val, west_*]")
    expected = (*VALIDATION, *(id for id in DRIVES if id.startswith("west")))
    assert made.scenario.validation == made.validation.index.ids == expected
    assert made.validation.split == "val+train"
    assert [step.test_images for step in made.validation.scenario.steps] == [expected] * 2
    assert made.validation.index.pixels.sum(0).tolist() == [4 + 6 * 4, 4 + 2 * 4, 2 * 4, 8 + 2 * 4]
    assert not set(expected) & {id for step in made.scenario.steps for id in step.images}
    assert reporter.said == []  # none of them is trained or tested on


def test_patterns_that_cannot_be_used(folder, silent):
    message = r"pattern 'east_\*' matches none of the 18 training images; their ids are like 'north_0' and 'west_5'"
    with pytest.raises(UserError, match=message):
        indexed(folder, silent, "data.validation=[val, east_*]")
    with pytest.raises(UserError, match=r"north_\* and \?\?\?\?\*_\* match all 18 training images, so that none is"):
        indexed(folder, silent, "data.validation=[north_*, '????*_*']")
    with pytest.raises(UserError, match=r"no split 'vall'\. Did you mean 'val'"):
        indexed(folder, silent, "data.validation=[vall, west_*]")
    with pytest.raises(UserError, match="leaves step 1 none with c; choose narrower patterns"):
        indexed(folder, silent, "data.validation=['*_2', '*_5']")


def test_ids_that_are_in_both_splits_cannot_be_joined(tmp_path, silent):
    root = make(tmp_path / "data", {"train": DRIVES, "test": TEST, "val": {"west_0": [0, 1]}})
    with pytest.raises(UserError, match=r"Splits val\+train of .* cannot be joined: 'west_0'"):
        indexed(root, silent, "data.validation=[val, north_*]")


def test_only_files_of_several_splits_are_joined(silent):
    reader, config = parse_data(
        {"data": {"name": "scenes", "validation": ["test", "train-0000*"]}, "scenario": {"task": "6-4"}}
    )
    with pytest.raises(UserError, match=r"several splits \(test\+train\), which only image files can be read from"):
        make_scenario(reader.open(), reader, config, silent())


@pytest.mark.parametrize("protocol", ["clean", "plop"])
def test_domain_steps_leave_out_matched_images(tmp_path, silent, protocol):
    cities = three_cities(tmp_path / "cities")
    settings = ("scenario.task=1-1", f"scenario.protocol={protocol}")
    plain, _ = indexed(cities, silent, *settings, name="cityscapes")
    trained = {id for step in plain.scenario.steps for id in step.images}
    made, _ = indexed(cities, silent, *settings, "data.validation=[extra, '*_00000?_*']", name="cityscapes")
    held_out = {id for id in trained if int(id.split("_")[1]) < 10}
    extra = {f"{city}/{city}_0000{k}_000000" for city in "ab" for k in (90, 91)}
    assert set(made.scenario.validation) == held_out | extra
    for before, now in zip(plain.scenario.steps, made.scenario.steps, strict=True):
        assert now.images == tuple(id for id in before.images if id not in held_out)
    with pytest.raises(UserError, match=r"holds out all 32 training images of step 1 \(b\); choose narrower patterns"):
        indexed(cities, silent, *settings, "data.validation=b/*", name="cityscapes")


def test_the_command_line_tells_their_number(folder, cli):
    place = ("--data", "folder", "--root", folder, "--set", "data.validation=[val, west_*]")
    shown = cli("scenario", "show", *place, "--task", "2-1").out
    assert "validation: 8 images of splits val and train, those of train left out of training at every step." in shown
    assert json.loads(cli("scenario", "show", *place, "--task", "2-1", "--json").out)["validation"] == "val+train"
    counts = [
        json.loads(cli("data", "stats", *place, "--split", split, "--json").out)["validation_images"]
        for split in ("train", "val", "test")
    ]
    assert counts == [6, 2, 0]
    assert json.loads(cli("data", "check", *place, "--json").out)["checked"].keys() == {"train", "test", "val"}
