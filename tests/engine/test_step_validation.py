"""Validation while a step trains: scores, the weights that are kept, early ends, and resuming with all of it."""

import math

import pytest
import torch
from grids import grid
from run_files import records
from safetensors.torch import load_file

from faircl.config.run import load_config
from faircl.engine import step_validation
from faircl.engine.in_step_checkpoints import InStepCheckpoints
from faircl.errors import Interrupted, UserError
from faircl.registry import METHODS

QUICK = (
    "train.accelerator=cpu",
    "scenario.task=6-4",
    "train.epochs=4",
    "train.later_epochs=2",
    "train.batch=6",
    "method.period=2",
)
HELD_OUT = "data.validation=0.25"
SPLIT = "data.validation=test"


@pytest.fixture
def scores(monkeypatch):
    """Return a function that sets the mean IoU that validations find, in their order."""

    def give(*values):
        true, left = step_validation.evaluate, list(values)

        def evaluate(*args, **kwargs):
            found = true(*args, **kwargs)
            if left:
                group = found.metrics.groups["all"]
                found.metrics.groups["all"] = type(group)(**{**group.__dict__, "miou": left.pop(0)})
            return found

        monkeypatch.setattr(step_validation, "evaluate", evaluate)

    return give


def weights(folder, step=0):
    return (folder.step_path(step) / "model.safetensors").read_bytes()


def validations(folder, step=0):
    return [record for record in folder.records("validation") if record["step"] == step]


def test_validation_does_not_change_training(tiny_train, tmp_path):
    plain = tiny_train(tmp_path / "plain", *QUICK, HELD_OUT)
    often = tiny_train(tmp_path / "often", *QUICK, HELD_OUT, "train.validate_every=1")
    assert weights(plain, 1) == weights(often, 1)
    assert plain.records("train") == often.records("train")
    ends = [record["iterations"] for record in validations(plain)]
    assert [record["iteration"] for record in validations(plain)] == ends  # one, after the last update
    assert len(validations(often)) == 4
    assert validations(often)[-1] == validations(plain)[0]


def test_held_out_images_are_scored_and_not_trained_on(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", *QUICK, HELD_OUT)
    scenario = folder.load_scenario()
    held_out = set(scenario.validation)
    assert held_out
    assert not held_out & {id for step in scenario.steps for id in step.images}
    pixels = sum(row["pixels"] for row in validations(folder)[0]["classes"])
    assert pixels == len(held_out) * 32 * 32


@pytest.fixture
def stop_after(monkeypatch):
    """Return a function that sends SIGTERM, as it were, after an update of the first step."""

    def stop(update):
        count, due = [], InStepCheckpoints.due

        def watched(self):
            count.append(1)
            self.signals.received = 15 if len(count) == update else 0
            return due(self)

        monkeypatch.setattr(InStepCheckpoints, "due", watched)

    return stop


@grid("keep", ["best", "last"])
def test_the_best_weights_are_kept(keep, tiny_train, tmp_path, scores, stop_after):
    scores(30.0, 50.0, 40.0, 45.0)
    folder = tiny_train(tmp_path / "run", *QUICK, SPLIT, "train.validate_every=1", f"train.keep={keep}")
    assert [record["iteration"] for record in validations(folder)] == [4, 8, 12, 16]
    stop_after({"best": 8, "last": 16}[keep])
    with pytest.raises(Interrupted):
        tiny_train(tmp_path / "stopped", *QUICK)
    (checkpoint,) = (tmp_path / "stopped/checkpoints").iterdir()
    expected, found = (load_file(path / "model.safetensors") for path in (checkpoint, folder.step_path(0)))
    assert list(expected) == list(found)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_method_ends_a_step_from_the_best_weights_and_may_change_them(tiny_train, tmp_path, scores, monkeypatch):
    scores(30.0, 50.0, 40.0, 45.0)
    validate, validated, begun = step_validation.StepValidation.validate, [], []

    def copied(model):
        return {name: value.clone() for name, value in model.state_dict().items()}

    def watched(self, iteration):
        validated.append(copied(self.model))
        validate(self, iteration)

    def end_step(self, context):
        begun.append(copied(context.model))
        for parameter in context.model.backbone.parameters():
            parameter.data /= 2

    monkeypatch.setattr(step_validation.StepValidation, "validate", watched)
    monkeypatch.setattr(METHODS.get("finetune"), "end_step", end_step)
    settings = (*QUICK[:-1], "method=finetune", SPLIT, "train.validate_every=1", "train.keep=best")
    saved = load_file(tiny_train(tmp_path / "run", *settings).step_path(0) / "model.safetensors")
    best = validated[1]
    assert all(torch.equal(value, best[name]) for name, value in begun[0].items())
    halved = [name for name, value in best.items() if not torch.equal(saved[name], value)]
    assert halved
    assert all(torch.equal(saved[name], best[name] / 2) for name in halved)


def test_a_step_ends_early_and_keeps_its_best(tiny_train, tmp_path, scores, silent):
    scores(30.0, 50.0, 40.0, 45.0)
    settings = (*QUICK, SPLIT, "train.validate_every=1", "train.patience=1", "train.keep=best")
    reporter = silent()
    folder = tiny_train(tmp_path / "run", *settings, reporter=reporter)
    assert [record["iteration"] for record in validations(folder)] == [4, 8, 12]
    assert "step 0 ends after update 12: one validation without a better one" in reporter.said
    assert "step 0 keeps the weights after update 8" in reporter.said
    scores(30.0, 50.0, 60.0, 70.0)
    longer = tiny_train(tmp_path / "longer", *settings)
    assert weights(longer) != weights(folder)


def test_nothing_to_score_ends_no_step(tiny_train, tmp_path, scores, silent):
    scores(*[math.nan] * 4)
    settings = (*QUICK, SPLIT, "train.validate_every=1", "train.patience=1", "train.keep=best")
    reporter = silent()
    folder = tiny_train(tmp_path / "run", *settings, reporter=reporter)
    assert [record["iteration"] for record in validations(folder)] == [4, 8, 12, 16]
    assert "step 0 validation after update 4: no validation image shows a class learned so far" in reporter.said


def test_stopped_after_its_early_end(tiny_train, tmp_path, scores, stop_after):
    """The step is not trained on: its best weights are restored and evaluated."""
    settings = (*QUICK, SPLIT, "train.validate_every=1", "train.patience=1", "train.keep=best")
    scores(30.0, 50.0, 40.0)
    whole = tiny_train(tmp_path / "whole", *settings)
    scores(30.0, 50.0, 40.0)
    stop_after(12)
    with pytest.raises(Interrupted, match="after update 12 of 16"):
        tiny_train(tmp_path / "run", *settings)
    folder = tiny_train(tmp_path / "run", *settings, resume=True)
    assert weights(folder) == weights(whole)
    assert validations(folder) == validations(whole)


def test_resumed_with_its_best(tiny_train, tmp_path, scores, stop_after):
    settings = (*QUICK, SPLIT, "train.validate_every=1", "train.keep=best")
    scores(30.0, 50.0, 40.0, 45.0)
    whole = tiny_train(tmp_path / "whole", *settings)
    scores(30.0, 50.0, 40.0, 45.0)
    stop_after(13)
    with pytest.raises(Interrupted, match="after update 13 of 16"):
        tiny_train(tmp_path / "run", *settings)
    assert set(load_file(tmp_path / "run/checkpoints/00-00000013/best_model.safetensors"))
    folder = tiny_train(tmp_path / "run", *settings, resume=True)
    assert weights(folder) == weights(whole)
    assert records(folder) == records(whole)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["train.validate_every=1"], "there are no validation images; set data.validation"),
        (["train.keep=best", HELD_OUT], "train.keep=best and train.patience choose between validations"),
        (["train.patience=2", HELD_OUT], "as in train.validate_every=2"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit(settings, words):
    with pytest.raises(UserError, match=words):
        load_config("demo", settings)
