"""Runs that are evaluated on validation images, and their saved steps on the test images afterwards."""

import json

import numpy as np
import pytest

import faircl
from faircl.data.images import ImageReading
from faircl.errors import UserError
from faircl.progress import SilentReporter
from faircl.readers.folder import FolderData

SHORT = ("method=finetune", "train.epochs=0.4", "train.later_epochs=0.4")
HELD_OUT = "data.validation=train-0000*"
CHOOSING = (*SHORT, HELD_OUT, "eval.images=validation")


@pytest.fixture
def chosen(street, tiny_train, tmp_path):
    return tiny_train(tmp_path / "chosen", *CHOOSING, root=street)


def test_no_test_image_is_read_by_training(street, tiny_config, tiny_train, silent, tmp_path, monkeypatch):
    from faircl.engine.plan import make_plan

    config = tiny_config(*CHOOSING, root=street)
    make_plan(config, config.data.open(), silent())  # verifies all images; they are known from now on
    read, true = set(), ImageReading.read
    monkeypatch.setattr(ImageReading, "read", lambda self, path: read.add(path.parent.name) or true(self, path))
    folder = tiny_train(tmp_path / "run", *CHOOSING, root=street)
    assert read == {"train"}
    assert [record["images"] for record in folder.records("eval")] == ["validation"] * 2
    assert folder.records("validation") == []  # the evaluation has the same scores


def test_records_are_those_of_the_validation_images(chosen, street):
    data = FolderData(street)
    held_out = [id for id in data.ids("train") if id.startswith("train-0000")]
    counts = sum(np.bincount(data.read_mask("train", id).ravel(), minlength=11) for id in held_out)
    last = chosen.records("eval")[-1]
    assert {row["id"]: row["pixels"] for row in last["classes"]} == dict(enumerate(counts.tolist()))
    assert last["leaked"] == 0


def test_saved_steps_are_evaluated_on_either(chosen, street, tiny_train, tmp_path, cli):
    again = faircl.evaluate(chosen.path, reporter=SilentReporter())
    assert [one.images for one in again] == ["validation"] * 2
    recorded = [record["miou"]["all"] for record in chosen.records("eval")]
    assert [one.groups["all"].miou for one in again] == pytest.approx(recorded, abs=1e-9)
    tested = tiny_train(tmp_path / "tested", *SHORT, HELD_OUT, root=street)
    ran = cli("eval", chosen.path, "--images", "test", "--json")
    found = json.loads(ran.out)["runs"][0]["steps"]
    assert [one["images"] for one in found] == ["test"] * 2
    same = [record["miou"] for record in tested.records("eval")]
    assert [one["miou"] for one in found] == same  # training does not depend on what is evaluated
    shown = cli("eval", tested.path, "--images", "validation")
    assert "validation images" in shown.out


def test_both_kinds_are_not_compared(chosen, street, tiny_train, tmp_path):
    tested = tiny_train(tmp_path / "tested", *SHORT, HELD_OUT, root=street)
    with pytest.raises(UserError, match=r"were evaluated on other images \(validation and test images\)"):
        faircl.compare([chosen.path, tested.path])
    assert len(faircl.compare([chosen.path, chosen.path], anyway=True).rows) == 1


def test_mistakes_are_named(chosen, street, tiny_config, tiny_train, tmp_path):
    with pytest.raises(UserError, match=r"eval\.images is validation, but there are no validation images"):
        tiny_config(*SHORT, "eval.images=validation", root=street)
    with pytest.raises(UserError, match=r"Unknown kind of images to evaluate 'val'\. .*Known: test, validation"):
        faircl.evaluate(chosen.path, images="val", reporter=SilentReporter())
    plain = tiny_train(tmp_path / "plain", *SHORT, root=street)
    with pytest.raises(UserError, match="has no validation images; leave --images validation out"):
        faircl.evaluate(plain.path, images="validation", reporter=SilentReporter())
    for kind in ("images", "masks"):
        (street / kind / "train/train-00003.png").unlink()
    with pytest.raises(UserError, match="are not those that the data has now"):
        faircl.evaluate(chosen.path, reporter=SilentReporter())
