"""A run that is stopped within a step and resumed equals one that was not: weights, method state and records."""

import pytest
import torch
from grids import grid
from run_files import records
from safetensors.torch import load_file

from faircl.engine import trainer
from faircl.engine.in_step_checkpoints import InStepCheckpoints
from faircl.engine.runtime import make_fabric
from faircl.errors import Interrupted
from faircl.loading.batch import FixedWindow
from faircl.loading.soft_labels import SoftLabels
from faircl.registry import METHODS

QUICK = (
    "train.accelerator=cpu",
    "scenario.task=6-4",
    "train.epochs=1",
    "train.later_epochs=1",
    "optim.lr=0.01",
    "train.log_every=1",
)
FAIRCL = [
    "{name: faircl, period: 1, queue: 50, quota: 4, average: 0.3}",
    "{name: faircl-paper, period: 1, queue: 50, quota: 4}",
    "{name: faircl, period: 2, unlabelled: paper, assign: prototype}",
    "{name: faircl, period: 1, unlabelled: paper, lambda_cluster: 0.02, unknown_cluster: true, margin: 1}",
    "{name: faircl-paper, period: 2, unlabelled: teacher, bound: true}",
    "{name: faircl-paper, period: 2, fairness: kl, histogram_momentum: 0.9, unlabelled: online, init: prototype}",
]
WRAPPED = ["{name: ewf, method: mib}", "{name: awt, method: plop}", "{name: ewf, method: rcil}"]


@pytest.fixture
def stop_at(monkeypatch):
    """Return a function that sends SIGTERM, as it were, after an update of a step."""

    def stop(step, iteration):
        due = InStepCheckpoints.due

        def watched(self):
            done[0] += 1
            if done[0] == sum(counts[:step]) + iteration:
                self.signals.received = 15
            return due(self)

        done, counts = [0], [COUNT, COUNT]
        monkeypatch.setattr(InStepCheckpoints, "due", watched)

    return stop


COUNT = 3
"""Updates of a step below."""


def same(one, other):
    for step in (0, 1):
        for file in ("model.safetensors", "method.safetensors", "method.json"):
            found, expected = ((run.step_path(step) / file).read_bytes() for run in (one, other))
            assert found == expected, (step, file)
    assert records(one) == records(other)


def settings(method):
    name = method if method in METHODS.builtin else ""
    memory = ("memory.images=6",) if name and METHODS.get(name).needs.memory else ()
    return (f"method={method}", *QUICK, *memory)


@grid(
    "method",
    [
        *(name for name in METHODS.builtin if name not in ("joint", "sats", "ewf", "awt", "faircl", "faircl-paper")),
        *FAIRCL,
        *WRAPPED,
    ],
    quick=lambda method: method in (FAIRCL[1], "rcil", WRAPPED[1]),
)
def test_stopped_within_the_second_step(method, tiny_train, tmp_path, stop_at):
    whole = tiny_train(tmp_path / "whole", *settings(method))
    assert [r["iterations"] for r in whole.records("train")] == [COUNT] * 2 * COUNT
    stop_at(1, 2)
    with pytest.raises(Interrupted, match=r"SIGTERM at step 1 after update 2 of 3, which is saved; continue with: "):
        tiny_train(tmp_path / "parts", *settings(method))
    parts = tiny_train(tmp_path / "parts", *settings(method), resume=True)
    same(parts, whole)


ADAMW = ("optim.name=adamw", "optim.lr=0.001", "optim.accumulate=2", "train.batch=4")
SEGFORMER = ("model={name: segformer, variant: b0}", "train.workers=1")


@grid(
    "more",
    [
        (*ADAMW, "model.dropout=0.3"),
        (*ADAMW, *SEGFORMER),
        ("method=joint",),
        ("train.precision=bf16", "balance.loss=weighted", "balance.sampling=rare", "train.augment=device"),
    ],
)
def test_generators_optimisers_and_samplers_go_on(more, tiny_train, tmp_path, stop_at):
    """Dropout, and SegFormer's stochastic depth, draw from torch's generator."""
    whole = tiny_train(tmp_path / "whole", *settings(FAIRCL[0]), *more)
    stop_at(0, 2)
    with pytest.raises(Interrupted, match="at step 0 after update 2"):
        tiny_train(tmp_path / "parts", *settings(FAIRCL[0]), *more)
    parts = tiny_train(tmp_path / "parts", *settings(FAIRCL[0]), *more, resume=True)
    for file in sorted((whole.path / "steps").rglob("*.safetensors")):
        assert (parts.path / file.relative_to(whole.path)).read_bytes() == file.read_bytes(), file
    assert records(parts) == records(whole)


@pytest.mark.parametrize("keep", ["last", "best"])
def test_soft_labels_are_made_again_and_not_saved(keep, tiny_train, tmp_path, stop_at, monkeypatch):
    """Neither with the method's state nor with that of the best validation; those of both scans are equal."""
    made, gather = [], SoftLabels.gather

    def watched(self):
        gather(self)
        made.append(self.of([FixedWindow(number, False) for number in sorted(self._places)], torch.device("cpu")))

    monkeypatch.setattr(SoftLabels, "gather", watched)
    more = ("data.validation=0.25", "train.validate_every=0.3", "train.keep=best") if keep == "best" else ()
    whole = tiny_train(tmp_path / "whole", *settings(FAIRCL[0]), *more)
    stop_at(1, 2)
    with pytest.raises(Interrupted):
        tiny_train(tmp_path / "parts", *settings(FAIRCL[0]), *more)
    (saved,) = (tmp_path / "parts" / "checkpoints").iterdir()
    assert (saved / "best_method.safetensors").exists() == (keep == "best")
    cells = made[0].classes.shape[1:3]
    for file in saved.glob("*method.safetensors"):
        assert not any(tensor.shape[1:3] == cells for tensor in load_file(file).values()), file
    same(tiny_train(tmp_path / "parts", *settings(FAIRCL[0]), *more, resume=True), whole)
    undisturbed, before, after = made
    for found in (before, after):
        assert torch.equal(found.classes, undisturbed.classes)
        assert torch.equal(found.shares, undisturbed.shares)


def test_stopped_at_every_update(tiny_train, tmp_path, stop_at, monkeypatch):
    """Also after the last update of a step, where the evaluation is left to do."""
    whole = tiny_train(tmp_path / "whole", *settings(FAIRCL[0]))
    monkeypatch.setattr(InStepCheckpoints, "due", lambda self: bool(setattr(self, "stop", 1) or True))
    for step in (0, 1):
        for update in range(1, COUNT + 1):
            with pytest.raises(Interrupted, match=f"SIGHUP at step {step} after update {update} of {COUNT}"):
                tiny_train(tmp_path / "parts", *settings(FAIRCL[0]), resume=(step, update) != (0, 1))
    monkeypatch.undo()
    same(tiny_train(tmp_path / "parts", *settings(FAIRCL[0]), resume=True), whole)


def test_every_step_begins_with_a_fresh_loss_scaler(tiny_train, tmp_path, stop_at, monkeypatch):
    """A run that is resumed at a step has no other; within a step the scale goes on. Here updates halve it."""
    scale, seen = [0], []

    def fabric(config):
        made = make_fabric(config)
        scale[0] = 64
        made.strategy.precision.state_dict = lambda: {"scale": scale[0]}
        made.strategy.precision.load_state_dict = lambda state: scale.__setitem__(0, state["scale"])
        return made

    def due(self):
        seen.append(scale[0])
        scale[0] //= 2
        return true(self)

    monkeypatch.setattr(trainer, "make_fabric", fabric)
    stop_at(1, 2)
    true = InStepCheckpoints.due
    monkeypatch.setattr(InStepCheckpoints, "due", due)
    with pytest.raises(Interrupted):
        tiny_train(tmp_path / "run", *settings("finetune"))
    tiny_train(tmp_path / "run", *settings("finetune"), resume=True)
    assert seen == [64, 32, 16] * 2
