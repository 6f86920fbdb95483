"""Every method trains three steps of the scenes through the engine, saves, resumes and is evaluated."""

import math

import pytest
from grids import grid

from faircl.registry import METHODS

QUICK = ("scenario.task=4-3-3", "train.epochs=1", "train.later_epochs=1", "optim.lr=0.01")


@grid(
    "name",
    [name for name in METHODS.builtin if name not in ("joint", "sats")],
    quick=lambda name: name in ("finetune", "faircl", "faircl-paper", "mib", "rcil", "ssul-m", "ewf"),
)
def test_three_steps(name, tiny_train, tmp_path):
    memory = ("memory.images=6",) if METHODS.get(name).needs.memory else ()
    run = tiny_train(tmp_path / "run", f"method={name}", *QUICK, *memory)
    assert run.finished_steps() == 3
    records = run.records("train")
    assert records
    assert all(math.isfinite(value) for record in records for value in record["terms"].values())
    assert [len(record["classes"]) for record in run.records("eval")] == [5, 8, 11]


@grid("name", ["plop", "sdr", "{name: ewf, method: {name: awt, method: mib}}"])
def test_resumed_at_the_last_step_equals_uninterrupted(name, tiny_train, silent, tmp_path):
    whole = tiny_train(tmp_path / "whole", f"method={name}", *QUICK)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "parts", f"method={name}", *QUICK, reporter=silent("step 2 train"))
    parts = tiny_train(tmp_path / "parts", f"method={name}", *QUICK, resume=True)
    for file in ("model.safetensors", "method.safetensors"):
        assert (parts.step_path(2) / file).read_bytes() == (whole.step_path(2) / file).read_bytes()


@grid("name", [name for name in METHODS.builtin if name != "joint"], quick=lambda name: name in ("mib", "sats"))
def test_attention_networks(name, tiny_train, tmp_path):
    memory = ("memory.images=6",) if METHODS.get(name).needs.memory else ()
    run = tiny_train(
        tmp_path / "run",
        f"method={name}",
        "model={name: segformer, variant: b0}",
        "scenario.task=4-3-3",
        "train.epochs=0.4",
        "train.later_epochs=0.4",
        "optim.lr=0.01",
        *memory,
    )
    assert run.finished_steps() == 3
    losses = [value for record in run.records("train") for value in record["terms"].values()]
    assert losses
    assert all(math.isfinite(value) for value in losses)
