"""A network from another package, registered by an entry point."""

from importlib.metadata import EntryPoint

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from faircl.engine.network import build_model
from faircl.errors import UserError
from faircl.models.segmenter import ModelConfig, Segmenter

SHORT = ("model={name: plain}", "method.name=finetune", "train.epochs=1", "train.later_epochs=1")


class WatchedDropout(nn.Dropout):
    """Dropout that records for every training pass, except on the meta device, whether it dropped anything."""

    dropped: list[bool]

    def forward(self, x):
        out = super().forward(x)
        if torch.is_grad_enabled() and x.device.type != "meta":
            self.dropped.append(not torch.equal(out, x))
        return out


class PlainConfig(ModelConfig):
    name: str = "plain"
    width: int = 8
    embedding: int = 8


class Plain(Segmenter):
    """A backbone with BatchNorm and dropout, without ``blocks``."""

    Config = PlainConfig
    name = "plain"
    summary = "two convolutions"

    def __init__(self, config):
        w, d = config.width, config.embedding
        backbone = _OneStage(nn.Conv2d(3, w, 4, 4), nn.BatchNorm2d(w), nn.ReLU(), WatchedDropout(0.5))
        super().__init__(backbone, _Last(nn.Conv2d(w, d, 1)), embedding_width=d, stage_widths=(w,))


class _OneStage(nn.Sequential):
    def forward(self, image):
        return (super().forward(image),)


class _Last(nn.Sequential):
    def forward(self, stages):
        return super().forward(stages[-1])


@pytest.fixture(autouse=True)
def dropped(monkeypatch):
    """Register the network as an installed package would; return the records of its dropout."""
    point = EntryPoint("plain", f"{__name__}:Plain", "faircl.models")
    monkeypatch.setattr("faircl.registry.entry_points", lambda group: [point] if group == point.group else [])
    monkeypatch.setattr(WatchedDropout, "dropped", [], raising=False)
    return WatchedDropout.dropped


def backbone(state):
    return {name: value for name, value in state.items() if name.startswith("backbone.")}


def same(one, other):
    assert one.keys() == other.keys() != set()
    return all(torch.equal(one[name], other[name]) for name in one)


def test_without_blocks_there_is_nothing_to_compute_twice(tiny_train, tmp_path):
    with pytest.raises(UserError, match=r"^train\.checkpointing is set, but network 'plain' has no blocks .*\.$") as e:
        tiny_train(tmp_path / "run", *SHORT, "train.checkpointing=true")
    assert "\n" not in str(e.value)
    assert not (tmp_path / "run").exists()


def test_the_command_line_says_so_in_one_line(cli, tiny_flags, tmp_path):
    flags = [part for setting in (*SHORT, "train.checkpointing=true") for part in ("--set", setting)]
    result = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags, *flags)
    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("faircl: train.checkpointing is set, but network 'plain' has no blocks to checkpoint")
    assert not (tmp_path / "run").exists()


# ---- a frozen backbone


def test_a_frozen_backbone_drops_nothing_and_stays(tiny_train, tmp_path, dropped):
    folder = tiny_train(tmp_path / "run", *SHORT, "optim.parts.backbone=0")
    assert dropped
    assert not any(dropped)
    network = build_model(folder.config()).state_dict()
    start = backbone(network)
    assert {"backbone.1.running_mean", "backbone.1.num_batches_tracked", "backbone.0.weight"} <= start.keys()
    for step in (0, 1):
        state = load_file(folder.step_path(step) / "model.safetensors")
        assert same(backbone(state), start)
        assert not torch.equal(state["decoder.0.weight"], network["decoder.0.weight"])


def test_a_backbone_that_trains_drops_and_moves(tiny_train, tmp_path, dropped):
    folder = tiny_train(tmp_path / "run", *SHORT)
    assert dropped
    assert all(dropped)
    start = backbone(build_model(folder.config()).state_dict())
    assert not same(backbone(load_file(folder.step_path(0) / "model.safetensors")), start)
