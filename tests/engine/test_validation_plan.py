"""Runs with validation images: read by no step, watched like all data, and ready to be evaluated."""

import numpy as np
import pytest
from PIL import Image

from faircl.data.images import ImageReading
from faircl.engine.evaluate import evaluate
from faircl.engine.plan import make_plan
from faircl.engine.step_inputs import step_iterations
from faircl.engine.step_validation import StepValidation
from faircl.errors import UserError
from faircl.models.small import Small, SmallConfig
from faircl.readers.folder import FolderData
from faircl.scenario.validation import held_out_ids

SHORT = ("method=finetune", "train.epochs=0.4", "train.later_epochs=0.4", "memory.images=6")
SHARE = "data.validation=0.2"


def test_no_step_reads_counts_or_replays_them(street, tiny_train, tiny_config, silent, tmp_path, monkeypatch):
    ids = tuple(FolderData(street).ids("train"))
    held_out = set(held_out_ids(ids, 0.2, 0))
    assert 0 < len(held_out) < 12
    config = tiny_config(*SHORT, SHARE, root=street)
    plan = make_plan(config, config.data.open(), silent())
    replayed = [id for memory in plan.memories for id in memory.images]
    assert replayed
    assert not held_out & set(replayed)
    for step, one in enumerate(plan.scenario.steps):
        assert not held_out & set(one.images)
        assert len(plan.label_counts(step)) == len(one.images)
        assert step_iterations(plan, step) <= len(one.images)
    # Images were verified above and are known, so that all that is read now is read for training and evaluation.
    monkeypatch.setattr(StepValidation, "due", lambda self, iteration: False)
    read, true = set(), ImageReading.read
    monkeypatch.setattr(ImageReading, "read", lambda self, path: read.add(path.stem) or true(self, path))
    folder = tiny_train(tmp_path / "run", *SHORT, SHARE, root=street)
    assert read & set(ids)
    assert not read & held_out
    assert folder.scenario()["validation"] == [id for id in ids if id in held_out]


@pytest.mark.parametrize("setting", [SHARE, "data.validation=val"])
def test_a_plan_can_be_evaluated_on_them(setting, street, tiny_config, silent):
    for kind in ("images", "masks"):
        (street / kind / "val").mkdir()
        for k in (3, 4):
            (street / kind / f"val/v{k}.png").write_bytes((street / kind / f"train/train-0000{k}.png").read_bytes())
    config = tiny_config(*SHORT, setting, root=street)
    plan = make_plan(config, config.data.open(), silent())
    model = Small(SmallConfig(width=8, embedding=8))
    model.classifier.grow(7)
    found, _ = evaluate(
        model, plan.data, plan.validation.split, plan.validation.scenario, 0, batch=4, workers=0, reporter=silent()
    )  # fmt: skip
    ids = plan.validation.scenario.steps[0].test_images
    masks = [plan.data.read_mask(plan.validation.split, id) for id in ids]
    truth = [int(sum((mask == id).sum() for mask in masks)) for id in range(1, 7)]
    assert [one.pixels for one in found.classes[1:]] == truth


@pytest.mark.parametrize("setting", [SHARE, "data.validation=test"])
def test_changed_validation_images_are_noticed(setting, street, tiny_train, silent, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", *SHORT, setting, root=street, reporter=silent("step 1 train"))
    split = "train" if setting == SHARE else "test"
    id = held_out_ids(tuple(FolderData(street).ids(split)), 0.2, 0)[0]
    path = street / f"images/{split}/{id}.png"
    Image.fromarray(255 - np.array(Image.open(path))).save(path)
    with pytest.raises(UserError, match=rf"1 of 32 images differs \(images/{split}/{id}.png\)"):
        tiny_train(tmp_path / "run", *SHORT, setting, root=street, resume=True)


def test_another_share_is_another_run(street, tiny_train, silent, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", *SHORT, SHARE, root=street, reporter=silent("step 1 train"))
    with pytest.raises(UserError, match=r"was begun with data\.validation 0\.2, not 0\.3"):
        tiny_train(tmp_path / "run", *SHORT, "data.validation=0.3", root=street, resume=True)
