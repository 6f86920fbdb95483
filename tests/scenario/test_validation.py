"""Validation images: which they are, that nothing trains on them, and what is scored."""

import json
import os
import shutil

import pytest
from validation_data import TEST, indexed, make, three_cities

import faircl
from faircl.errors import UserError
from faircl.scenario.validation import held_out_ids, held_out_of_domains

TRAIN = {f"i{k:02d}": [0, 1 + k % 3] for k in range(60)}


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path / "data", {"train": TRAIN, "test": TEST, "val": {"v1": [0, 1], "v2": [3, 3], "v3": [0, 0]}})


def test_a_share_is_drawn_by_seed_and_name_alone():
    ids = [f"image {k}" for k in range(2000)]
    chosen = held_out_ids(ids, 0.1, 0)
    assert 150 < len(chosen) < 250
    assert set(held_out_ids(ids[:1000], 0.1, 0)) == set(chosen) & set(ids[:1000])  # whatever else there is
    assert held_out_ids(ids[::-1], 0.1, 0) == chosen[::-1]
    assert set(held_out_ids(ids, 0.2, 0)) > set(chosen)
    assert set(held_out_ids(ids, 0.1, 1)) != set(chosen)
    assert len(held_out_ids(ids[:3], 1e-9, 0)) == 1
    assert len(held_out_ids(["caf\udce9"], 0.5, 0)) == 1  # a name that is no UTF-8


def test_a_share_of_every_domain():
    domains = {f"{city}/{k}": city for city, count in (("a", 1), ("b", 2), ("c", 100)) for k in range(count)}
    for share in (1e-9, 0.3, 0.999):
        chosen = held_out_of_domains(domains, share, 0)
        counts = {city: sum(domains[id] == city for id in chosen) for city in "abc"}
        assert (counts["a"], counts["b"]) == (0, 1)
        assert counts["c"] == 1 if share < 0.1 else counts["c"] == 99 if share > 0.9 else 15 < counts["c"] < 45


def test_held_out_images_are_nowhere_in_training(folder, silent):
    plain, _ = indexed(folder, silent)
    made, reporter = indexed(folder, silent, "data.validation=0.2")
    held_out = set(held_out_ids(tuple(TRAIN), 0.2, 0))
    assert 5 < len(held_out) < 20
    assert set(made.validation.index.ids) == set(made.scenario.validation) == held_out
    assert not held_out & set(made.train.ids)
    for before, now in zip(plain.scenario.steps, made.scenario.steps, strict=True):
        assert now.images == tuple(id for id in before.images if id not in held_out)
        assert now.test_images == before.test_images
    assert sum(made.scenario.pixels) == 8 * (60 - len(held_out))
    assert made.splits == ("train", "test", "train")
    assert made.validation.split == "train"
    assert reporter.said == []


def test_validation_images_of_every_step_follow_the_convention(folder, silent):
    whole, _ = indexed(folder, silent, "data.validation=val")
    assert [step.test_images for step in whole.validation.scenario.steps] == [("v1", "v2", "v3")] * 2
    seen, _ = indexed(folder, silent, "data.validation=val", convention="plop")
    assert [step.test_images for step in seen.validation.scenario.steps] == [("v1",), ("v1", "v2")]
    assert [step.test_images for step in seen.scenario.steps] == [("x", "y")] * 2
    joint, _ = indexed(folder, silent, "data.validation=0.2", joint=True)
    assert joint.validation.scenario.steps[0].test_images == joint.scenario.validation
    assert whole.validation.split == "val"
    assert whole.scenario.steps == indexed(folder, silent)[0].scenario.steps  # nothing is left out of training


def test_a_convention_that_finds_no_validation_image_says_so(folder, silent):
    for kind in ("images", "masks"):
        (folder / kind / "val/v1.png").unlink()
    with pytest.raises(UserError, match="After step 0 no validation image shows a class learned so far"):
        indexed(folder, silent, "data.validation=val", convention="plop")


def test_the_digest_changes_with_validation_images_alone(folder, silent):
    plain, _ = indexed(folder, silent)
    digests = {
        indexed(folder, silent, f"data.validation={value}", f"data.validation_seed={seed}")[0].scenario.sha256
        for value, seed in (("0.2", 0), ("0.2", 1), ("0.3", 0), ("val", 0))
    }
    assert len(digests | {plain.scenario.sha256}) == 5
    assert "validation" not in plain.scenario.to_json()
    assert indexed(folder, silent, "data.validation_seed=7")[0].scenario.sha256 == plain.scenario.sha256
    made = indexed(folder, silent, "data.validation=0.2")[0].scenario
    assert faircl.Scenario.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize("setting", ["overlapped", "disjoint"])
def test_every_class_keeps_a_training_image(tmp_path, silent, setting):
    """One image alone shows c; the seeds by which it is held out are refused, the others are not."""
    train = {f"i{k}": [0, 1, 2] if k else [0, 3] for k in range(30)}
    root = make(tmp_path / "data", {"train": train, "test": TEST})
    held = {seed: "i0" in held_out_ids(tuple(train), 0.3, seed) for seed in range(8)}
    assert set(held.values()) == {True, False}
    for seed, lost in held.items():
        settings = ("data.validation=0.3", f"data.validation_seed={seed}", f"scenario.setting={setting}")
        if not lost:
            indexed(root, silent, *settings)
            continue
        message = r"holds out \d+ of 30 training images, which leaves step 1 none with c; choose a smaller share or"
        with pytest.raises(UserError, match=message):
            indexed(root, silent, *settings)


def test_shared_images_are_reported(folder, silent):
    _, reporter = indexed(folder, silent, "data.validation=test")
    assert reporter.said == [
        "warning: 100.0% of the validation images are also test images, so what is chosen by validation is chosen on "
        "the test images"
    ]
    os.remove(folder / "images/val/v1.png")
    os.link(folder / "images/train/i00.png", folder / "images/val/v1.png")
    _, reporter = indexed(folder, silent, "data.validation=val")
    assert len(reporter.said) == 1
    assert "33.3% of the validation images have been trained on" in reporter.said[0]


@pytest.mark.parametrize("value", ["0", "1", "1.5", "-0.1", ".nan", "''", "[]", "[val, '']", "[0.1]", "true"])
def test_what_names_no_images(value, folder, silent):
    with pytest.raises(UserError, match=r"data\.validation"):
        indexed(folder, silent, f"data.validation={value}")


def test_splits_that_cannot_be_used(folder, silent):
    with pytest.raises(
        UserError, match="names split 'train', which is trained on; name another split, or say which of its images"
    ):
        indexed(folder, silent, "data.validation=train")
    with pytest.raises(UserError, match="names split 'train', which is trained on"):
        indexed(folder, silent, "data.validation=[val, train]")
    with pytest.raises(UserError, match=r"no split 'vall'\. Did you mean 'val'"):
        indexed(folder, silent, "data.validation=vall")


@pytest.fixture
def cities(tmp_path):
    return three_cities(tmp_path / "cities")


@pytest.mark.parametrize("protocol", ["clean", "plop"])
def test_domain_steps_leave_out_a_share_of_every_domain(cities, silent, protocol):
    settings = ("scenario.task=1-1", f"scenario.protocol={protocol}")
    plain, _ = indexed(cities, silent, *settings, name="cityscapes")
    made, reporter = indexed(cities, silent, *settings, "data.validation=0.2", name="cityscapes")
    held_out = set(made.scenario.validation)
    so_far = ""
    for before, now, validated in zip(
        plain.scenario.steps, made.scenario.steps, made.validation.scenario.steps, strict=True
    ):
        so_far += now.domains[0]
        assert now.images == tuple(id for id in before.images if id not in held_out)
        assert len(now.images) < len(before.images) == 32
        assert now.test_images == before.test_images
        assert set(validated.test_images) == {id for id in held_out if id[0] in so_far}
        assert {id[0] for id in validated.test_images} == set(so_far)
    assert bool(reporter.said) == (protocol == "plop")  # which tests on what it was to train on


def test_domain_steps_with_a_split_of_their_own(cities, silent):
    settings = ("scenario.protocol=clean", "data.validation=extra", "scenario.order=[a, c, b]")
    made, _ = indexed(cities, silent, *settings, "scenario.task=1-1", name="cityscapes")
    found = [[id[0] for id in step.test_images] for step in made.validation.scenario.steps]
    assert found == [["a", "a"], ["a", "a"], ["a", "a", "b", "b"]]
    with pytest.raises(UserError, match=r"After step 0 there is no validation image of the domains so far \(c\)"):
        indexed(cities, silent, *settings[:2], "scenario.order=[c, a, b]", "scenario.task=1-1", name="cityscapes")


def test_the_command_line_tells_their_number(folder, cli):
    place = ("--data", "folder", "--root", folder)
    count = len(held_out_ids(tuple(TRAIN), 0.2, 0))
    by_share, by_name = ("--set", "data.validation=0.2"), ("--set", "data.validation=val")
    shown = cli("scenario", "show", *place, "--task", "2-1", *by_share)
    assert f"validation: {count} images of split train, left out of training at every step." in shown.out
    assert "validation: 3 images of split val." in cli("scenario", "show", *place, "--task", "2-1", *by_name).out
    saved = json.loads(cli("scenario", "show", *place, "--task", "2-1", *by_share, "--json").out)
    assert (saved["validation"], saved["validation_images"]) == ("train", count)
    assert "validation" not in cli("scenario", "show", *place, "--task", "2-1").out
    assert f"validation images: {count} of 60" in cli("data", "stats", *place, *by_share).out
    assert json.loads(cli("data", "stats", *place, *by_share, "--json").out)["validation_images"] == count
    assert (
        json.loads(cli("data", "stats", *place, *by_share, "--split", "test", "--json").out)["validation_images"] == 0
    )
    assert "validation" not in cli("data", "stats", *place).out
    assert json.loads(cli("data", "check", *place, *by_name, "--json").out)["checked"].keys() == {
        "train",
        "test",
        "val",
    }


def test_copies_of_the_data_hold_out_the_same_images(folder, silent, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    one, other = (indexed(root, silent, "data.validation=0.2")[0] for root in (folder, tmp_path / "copy"))
    assert one.scenario == other.scenario
