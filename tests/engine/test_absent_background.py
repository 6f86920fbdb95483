"""A background class that no test image shows: by hand, on two images of four pixels."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from faircl.data.label_index import index_labels
from faircl.data.masks import write_mask
from faircl.engine import evaluate as evaluation
from faircl.engine.evaluate import evaluate
from faircl.engine.reevaluate import evaluate_again
from faircl.models.small import Small, SmallConfig
from faircl.progress import SilentReporter
from faircl.readers.folder import FolderData
from faircl.scenario import CONVENTIONS, Scenario, build_scenario

WHOLE = {"x": [[1, 1], [2, 2]], "y": [[1, 1], [1, 2]]}
WITH_BACKGROUND = {"x": [[1, 1], [2, 2]], "y": [[1, 1], [0, 2]]}
# Predictions: class a is channel 1, class b channel 2.
AFTER = {0: ([[1, 0], [0, 0]], [[1, 1], [1, 1]]), 1: ([[1, 0], [2, 2]], [[1, 1], [1, 2]])}


@pytest.fixture
def make(tmp_path):
    def write(test, names="background\na\nb\n"):
        for split, masks in (("train", WITH_BACKGROUND), ("test", test)):
            for kind in ("images", "masks"):
                (tmp_path / kind / split).mkdir(parents=True, exist_ok=True)
            for id, mask in masks.items():
                write_mask(tmp_path / "masks" / split / f"{id}.png", np.array(mask, np.uint8))
                Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / "images" / split / f"{id}.png")
        (tmp_path / "classes.txt").write_text(names)
        return FolderData(tmp_path)

    return write


def scenario_of(data, steps=((1,), (2,)), convention="full"):
    train, test = (index_labels(data, split) for split in ("train", "test"))
    return build_scenario(data.classes, steps, train, test, task="1-1", convention=CONVENTIONS[convention])


def scores(data, scenario, step, monkeypatch, convention="full"):
    model = Small(SmallConfig(width=8, embedding=8))
    monkeypatch.setattr(evaluation, "_logits", lambda model, images: torch.zeros(len(images), 3, 1, 1))
    monkeypatch.setattr(evaluation, "upsampled_argmax", lambda logits, size: torch.tensor(AFTER[step]))
    return evaluate(
        model, data, "test", scenario, step, convention=CONVENTIONS[convention], size=2, batch=2, workers=0,
        reporter=SilentReporter(),
    ).metrics  # fmt: skip


def test_absent_background_is_scored_at_no_step(make, monkeypatch):
    data = make(WHOLE)
    scenario = scenario_of(data)
    assert scenario.background_absent
    first, last = (scores(data, scenario, step, monkeypatch) for step in (0, 1))
    # a: 4 hits, 5 of the truth, 5 predicted, one of them on b. Background would have 2 hits of 4.
    assert [c.iou for c in first.classes] == [pytest.approx(math.nan, nan_ok=True), pytest.approx(100 * 4 / 6)]
    assert first.groups["all"].miou == pytest.approx(100 * 4 / 6)
    assert (first.classes[0].pixels, first.worst.name, first.mean_accuracy) == (0, "a", pytest.approx(80))
    # a: 4 hits of 5; b: all 3.
    assert [c.iou for c in last.classes][1:] == pytest.approx([80, 100])
    assert last.groups["old"].miou == pytest.approx(80)
    assert math.isnan(last.classes[0].iou)


def test_background_that_one_pixel_shows_is_scored(make, monkeypatch):
    data = make(WITH_BACKGROUND)
    scenario = scenario_of(data)
    assert not scenario.background_absent
    first = scores(data, scenario, 0, monkeypatch)
    # a: 3 hits, 4 of the truth, 5 predicted. Background: 2 hits, 4 of the truth, 3 predicted.
    assert [c.iou for c in first.classes] == pytest.approx([100 * 2 / 5, 100 * 3 / 6])
    assert first.groups["all"].miou == pytest.approx(45)


def test_classes_of_no_step_stay_background(make, monkeypatch):
    data = make(WHOLE)
    scenario = scenario_of(data, steps=((1,),))
    assert not scenario.background_absent
    assert scores(data, scenario, 0, monkeypatch).classes[0].iou == pytest.approx(50)


def test_a_convention_that_counts_no_future_pixel_agrees(make, monkeypatch):
    data = make(WHOLE)
    first = scores(data, scenario_of(data, convention="mib"), 0, monkeypatch, "mib")
    assert math.isnan(first.classes[0].iou)


def test_data_without_a_background_class_have_none_to_miss(make):
    mask = {"x": [[0, 0], [1, 1]]}
    data = make(mask, names="a\nb\nc\n")
    assert not scenario_of(data, steps=((0, 1), (2,))).background_absent


def test_the_digest_of_a_scenario_does_not_depend_on_it(make):
    scenario = scenario_of(make(WHOLE))
    saved = scenario.to_json()
    assert saved.pop("background_absent") is True
    before = Scenario.from_json(saved)  # as an earlier version wrote it
    assert not before.background_absent
    assert before.sha256 == scenario.sha256
    assert Scenario.from_json(scenario.to_json()) == scenario


def test_a_run_and_its_evaluation_agree_also_if_an_earlier_version_began_it(make, tiny_train, silent, tmp_path):
    data = make(WHOLE)
    settings = ("method=finetune", "scenario.task=1-1", "train.crop=8", "train.batch=2", "train.epochs=1")
    folder = tiny_train(tmp_path / "run", *settings, root=data.root)
    recorded = [record["classes"][0]["iou"] for record in folder.records("eval")]
    assert recorded == [None, None]
    saved = folder.scenario()
    del saved["background_absent"]
    folder.write_text("scenario.json", json.dumps(saved))
    assert all(math.isnan(metrics.classes[0].iou) for metrics in evaluate_again(folder, silent()))


def test_the_command_line_says_so(make, cli):
    data = make(WHOLE)
    place = ("--data", "folder", "--root", data.root)
    shown = cli("scenario", "show", *place, "--task", "1-1")
    assert "no test image shows background, so it is scored at no step" in shown.out
    assert json.loads(cli("scenario", "show", *place, "--json").out)["background_absent"] is True
    checked = cli("data", "check", *place, "--json")
    messages = [one["message"] for one in json.loads(checked.out)["findings"] if one["kind"] == "empty-class"]
    assert messages == [
        "Class 'background' has no pixel in split 'test'; if the split is tested on, background is scored at no step."
    ]
    make(WITH_BACKGROUND)
    assert "scored at no step" not in cli("scenario", "show", *place, "--task", "1-1").out
