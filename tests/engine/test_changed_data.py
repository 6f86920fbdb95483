"""Data that change between two steps of a run, or before its evaluation."""

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from faircl.engine.reevaluate import evaluate_again
from faircl.errors import UserError
from faircl.runs.folder import RunFolder

SHORT = ("method=finetune", "train.epochs=0.4", "train.later_epochs=0.4")


@pytest.fixture
def begun(street, tiny_train, silent, tmp_path):
    """A run on files, interrupted in its second step."""
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", *SHORT, root=street, reporter=silent("step 1 train"))
    return tmp_path / "run"


def edit(path, change):
    picture = Image.open(path)
    edited = Image.fromarray(change(np.array(picture)))
    if picture.getpalette():
        edited.putpalette(picture.getpalette())
    edited.save(path)


def invert(street):
    edit(street / "images/train/train-00003.png", lambda pixels: 255 - pixels)


def mirror(street):
    edit(street / "masks/train/train-00004.png", lambda ids: ids[:, ::-1].copy())


def swap(street):
    one, other = (street / f"images/test/test-0000{k}.png" for k in (0, 1))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def rename(street):
    for kind in ("images", "masks"):
        (street / kind / "train/train-00003.png").rename(street / kind / "train/x.png")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (invert, r"1 of 32 images differs \(images/train/train-00003.png\)"),
        (mirror, r"1 of 32 masks differs \(masks/train/train-00004.png\)"),
        (swap, r"2 of 32 images differ \(images/test/test-00000.png, images/test/test-00001.png\)"),
        (rename, r"1 image is missing \(train/train-00003\), 1 image is new \(images/train/x.png\)"),
    ],
)
def test_a_run_is_not_resumed_on_changed_data(change, found, begun, street, tiny_train, silent):
    change(street)
    reporter, saved = silent(), {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    message = rf"The data have changed since {begun} was begun: {found}; restore them or start a new run in another"
    with pytest.raises(UserError, match=message):
        tiny_train(begun, *SHORT, root=street, resume=True, reporter=reporter)
    assert not [task for task in reporter.tasks if "train)" not in task and "test)" not in task]  # nothing was trained
    assert {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()} == saved


def test_a_run_is_resumed_on_a_copy_elsewhere_and_with_other_times(begun, street, tiny_train, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(street, copy, copy_function=shutil.copyfile)
    shutil.rmtree(street)
    for path in copy.rglob("*.png"):
        os.utime(path, (1, 1))
    assert tiny_train(begun, *SHORT, root=copy, resume=True).finished_steps() == 2


def test_digests_are_compared_as_they_were_taken(begun, street, tiny_train):
    assert json.loads((begun / "data.json").read_text())["kind"] == "sample"
    assert tiny_train(begun, *SHORT, "data.digest=full", root=street, resume=True).finished_steps() == 2


def test_a_run_of_an_earlier_version_is_taken_up_and_watched_from_then_on(begun, street, tiny_train, silent):
    (begun / "data.json").unlink()
    invert(street)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(begun, *SHORT, root=street, resume=True, reporter=silent("step 1 train"))
    mirror(street)
    with pytest.raises(UserError, match="The data have changed since"):
        tiny_train(begun, *SHORT, root=street, resume=True)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 2, "kind": "sample", "splits": {}}', "split"])
def test_damaged_digests_are_reported(text, begun, street, tiny_train):
    if text == "split":
        text = json.dumps({"format": 1, "kind": "sample", "splits": {"train": {"a": "0123"}}})
    (begun / "data.json").write_text(text)
    with pytest.raises(UserError, match=r"data.json.*damaged"):
        tiny_train(begun, *SHORT, root=street, resume=True)


def test_evaluation_notes_changed_test_images(begun, street, silent):
    reporter = silent()
    invert(street)  # a training image
    evaluate_again(RunFolder(begun), reporter)
    assert not reporter.said
    edit(street / "masks/test/test-00002.png", lambda ids: ids[:, ::-1].copy())
    evaluate_again(RunFolder(begun), reporter)
    assert reporter.said == [
        f"note: the test data have changed since {begun} was begun: 1 of 8 masks differs (masks/test/test-00002.png)"
    ]
