"""Averaging with the network before a step on two processes: alike on both, and equal to one."""

import pytest
import torch
import torch.distributed as dist
from processes import start

from faircl.engine.trainer import train
from faircl.methods.faircl import weight_average
from faircl.methods.faircl.weight_average import WeightAverage
from faircl.progress import SilentReporter

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")

JUDGED = 15  # no multiple of the processes, and fewer windows than there are
SETTINGS = (
    *("train.precision=fp64", "method.period=2", "method.windows=3", "method.average=0.5"),
    # Long and fast enough for the new classes to be found: an IoU of 0 would be equal everywhere.
    *("train.epochs=8", "train.later_epochs=12", "optim.later_lr=0.3"),
    *("method.lambda_soft=0.1", "method.lambda_iou=0"),
)
KINDS = {
    "equal": ("train.frozen_norm=always",),
    "local": ("train.frozen_norm=never",),  # BatchNorm's statistics are those of each process's share of a batch
}


def averaged(config, out):
    """Train two steps; return the scores of the new classes, the windows behind them, and weights around averaging."""
    found = {"scores": [], "windows": []}
    score, apply = weight_average.new_class_iou, WeightAverage.apply

    def weights(context):
        return {name: value.clone() for name, value in context.model.state_dict().items()}

    def scored(context):
        seen, scan = [], context.scan

        def watched(windows, most):
            for batch in scan(windows, most):
                seen.extend(batch.windows)
                yield batch

        context.scan = watched
        found["scores"].append(score(context))
        found["windows"].append(seen)
        context.scan = scan
        return found["scores"][-1]

    def applied(self, context):
        found["before"] = weights(context)
        apply(self, context)
        found["after"] = weights(context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_average, "JUDGED", JUDGED)
        patch.setattr(weight_average, "new_class_iou", scored)
        patch.setattr(WeightAverage, "apply", applied)
        train(config, out, SilentReporter())
    return found


def all_averaged(configs, out):
    return {kind: averaged(config, out / kind) for kind, config in configs.items()}


@pytest.fixture(scope="module")
def configs(tiny_config):
    return {kind: tiny_config(*SETTINGS, *own) for kind, own in KINDS.items()}


@pytest.fixture(scope="module")
def together(configs, tmp_path_factory):
    return start(2, all_averaged, configs, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("kind", KINDS)
def test_both_processes_have_the_same_weights(kind, together):
    first, second = (found[kind] for found in together)
    assert first["scores"] == second["scores"]
    assert min(first["scores"]) > 0
    assert any(not torch.equal(value, first["before"][name]) for name, value in first["after"].items())
    assert all(torch.equal(value, second["after"][name]) for name, value in first["after"].items())


def test_the_weights_are_those_of_one_process(configs, together, tmp_path):
    alone, first = averaged(configs["equal"], tmp_path / "one"), together[0]["equal"]
    assert first["scores"] == pytest.approx(alone["scores"], abs=1e-8)
    for name, value in alone["after"].items():
        torch.testing.assert_close(first["after"][name], value, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_every_window_is_judged_by_one_of_them(kind, together):
    for shares in zip(*(found[kind]["windows"] for found in together), strict=True):
        assert sorted(map(len, shares)) == [JUDGED // 2, JUDGED - JUDGED // 2]
        assert len({number for share in shares for number in share}) == JUDGED
