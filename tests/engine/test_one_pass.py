"""A later step of FairCL runs one network, once per update; the old one is seen before the step alone."""

import gc

import pytest
import torch

from faircl.engine.step_updates import StepUpdates
from faircl.engine.trainer import Trainer
from faircl.methods.faircl import weight_average
from faircl.models.segmenter import Segmenter


def parameters():
    """Parameters that are alive; by type, since ``isinstance`` would ask a weak proxy for an object that is gone."""
    return [one for one in gc.get_objects() if type(one) is torch.nn.Parameter]


@pytest.fixture
def watched(monkeypatch):
    """Count passes, networks and copies of a parameter in the second step's updates, and windows seen outside them."""
    seen = {"scan": 0, "training": set(), "passes": 0, "updates": 0, "networks": set(), "copies": set()}
    inside = []
    # Of networks that other tests have left. The functions below hold them: a freed one would lend its id to a copy.
    others = {id(one): one for one in parameters()}
    forward, update, run = Segmenter.forward, StepUpdates.update, Trainer.train_step

    def passed(self, image, attentions=False):
        if inside == [1, "update"]:
            seen["passes"] += 1
            seen["networks"].add(id(self))
        elif inside == [1]:
            seen["scan"] += len(image)
            seen["training"].add(self.training)
        return forward(self, image, attentions)

    def updated(self, measure=False):
        inside.append("update")
        found = update(self, measure)
        inside.pop()
        if inside == [1]:
            seen["updates"] += 1
            if seen["updates"] == 1:
                gc.collect()  # networks of the first step that wait to be freed are no copies
            shape = self.updater.network.module.backbone.stem[0].weight.shape
            alive = [one for one in parameters() if one.shape == shape and id(one) not in others]
            seen["copies"].add(len(alive))
        return found

    def trained(self, step, resumed=None):
        inside[:] = [step]
        found = run(self, step, resumed)
        inside.clear()
        return found

    monkeypatch.setattr(Segmenter, "forward", passed)
    monkeypatch.setattr(StepUpdates, "update", updated)
    monkeypatch.setattr(Trainer, "train_step", trained)
    return seen


@pytest.mark.parametrize(
    ("method", "epochs", "scanned"),
    [
        ("{name: faircl, windows: 3}", 4, 3 * 24),
        ("{name: faircl, windows: 3}", 2, 2 * 24),  # the third window of an image is never trained on
        ("faircl-paper", 1, 24),
        ("finetune", 1, 0),
    ],
)
def test_one_pass_per_update_and_no_second_network(method, epochs, scanned, watched, tiny_train, tmp_path):
    tiny_train(tmp_path / "run", f"method={method}", f"train.later_epochs={epochs}")
    assert watched["updates"] == 3 * epochs
    assert watched["passes"] == watched["updates"]
    assert len(watched["networks"]) == 1
    assert watched["scan"] == scanned
    assert watched["copies"] == {1}


def test_averaging_judges_on_a_few_windows_in_evaluation_mode(watched, tiny_train, tmp_path, monkeypatch):
    monkeypatch.setattr(weight_average, "JUDGED", 10)
    tiny_train(tmp_path / "run", "method={name: faircl, windows: 3, average: 0.5}", "train.later_epochs=4")
    assert watched["scan"] - 3 * 24 in (2 * 10, 3 * 10)  # before averaging, and with one or two shares
    assert watched["training"] == {False}
    assert watched["passes"] == watched["updates"] == 12
    assert watched["copies"] == {1}


def test_a_teacher_would_be_seen(watched, tiny_train, tmp_path):
    tiny_train(tmp_path / "run", "method=mib")
    assert watched["passes"] == 2 * watched["updates"]
    assert watched["copies"] == {2}
