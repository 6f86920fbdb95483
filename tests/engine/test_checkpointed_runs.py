"""Gradient checkpointing does not change a run, also if it is switched on or off on resuming."""

import pytest
import torch
from grids import grid
from safetensors.torch import load_file

from faircl.engine.network import build_model
from faircl.models import checkpointing


def states(folder):
    """Weights and method state of every step."""
    files = ("model.safetensors", "method.safetensors")
    return [load_file(folder.step_path(step) / file) for step in (0, 1) for file in files]


def close(found, expected):
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            torch.testing.assert_close(one[name], value, rtol=0, atol=1e-6, msg=name)


@pytest.fixture
def passes(monkeypatch):
    """One entry per block that was run with checkpointing."""
    count, plain = [], checkpointing.checkpoint
    monkeypatch.setattr(checkpointing, "checkpoint", lambda *a, **k: [count.append(1), plain(*a, **k)][1])
    return count


def test_the_run_is_the_same(tiny_train, tiny_run, tmp_path, passes):
    folder = tiny_train(tmp_path / "run", "train.checkpointing=true")
    assert len(passes) == 2 * (1 + len(folder.records("train")))  # two blocks: once in check_network, then every batch
    close(states(folder), states(tiny_run))
    start = build_model(tiny_run.config()).state_dict()
    assert not torch.equal(states(folder)[0]["backbone.stage4.0.0.weight"], start["backbone.stage4.0.0.weight"])
    for one, other in zip(folder.records("train"), tiny_run.records("train"), strict=True):
        assert one["terms"] == pytest.approx(other["terms"], abs=1e-5)
    pairs = zip(folder.records("eval"), tiny_run.records("eval"), strict=True)
    assert all(one["miou"] == pytest.approx(other["miou"]) for one, other in pairs)


@grid(("begun", "resumed"), [("false", "true"), ("true", "false")])
def test_a_run_is_resumed_either_way(begun, resumed, tiny_train, tiny_run, silent, tmp_path, passes):
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", f"train.checkpointing={begun}", reporter=silent("step 1 train"))
    assert bool(passes) == (begun == "true")
    passes.clear()
    folder = tiny_train(tmp_path / "run", f"train.checkpointing={resumed}", resume=True)
    assert bool(passes) == (resumed == "true")
    assert folder.finished_steps() == 2
    assert folder.config().train.checkpointing == (begun == "true")  # the saved configuration is that of the first call
    close(states(folder), states(tiny_run))
