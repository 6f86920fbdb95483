"""Stochastic depth equals that of transformers, random numbers and gradients included."""

import copy

import pytest
import torch
from torch import nn
from transformers.models.segformer.modeling_segformer import SegformerDropPath

from faircl.models.segformer import SegFormer, SegFormerConfig
from faircl.models.stochastic_depth import StochasticDepth


@pytest.mark.parametrize("rate", [0.004, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(64, 5, 3), (64, 2, 4, 4), (1, 7)])
def test_draws_values_and_gradients_are_those_of_transformers(rate, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = []
    for module in (StochasticDepth(rate), SegformerDropPath(rate)):
        given = x.clone().requires_grad_()
        torch.manual_seed(7)
        out = module.train()(given)
        (out * torch.arange(out.numel()).view(shape)).sum().backward()
        found.append((out.detach(), given.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_branches_are_dropped_whole_and_as_often_as_said():
    torch.manual_seed(0)
    out = StochasticDepth(0.3).train()(torch.ones(20_000, 3))
    assert torch.equal(out.min(1).values, out.max(1).values)
    assert (out[:, 0] == 0).float().mean() == pytest.approx(0.3, abs=0.01)
    assert out.mean() == pytest.approx(1, abs=0.02)


def test_short_numbers_stay_short_but_rates_do_not_round():
    torch.manual_seed(0)
    out = StochasticDepth(0.001).train()(torch.ones(200_000, 1, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert (out == 0).float().mean() == pytest.approx(0.001, abs=3e-4)  # steps of 1/256 would give 0 or 0.004


@pytest.mark.parametrize("rate", [0.004, 0.02, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_mean_of_short_numbers_stays(rate, dtype):
    torch.manual_seed(0)
    out = StochasticDepth(rate).train()(torch.ones(400_000, 1, dtype=dtype))
    kept = out[out > 0].double()
    assert len(kept.unique()) <= 3
    assert kept.mean() == pytest.approx(1 / (1 - rate), rel=1e-4)  # bf16 alone would be off by up to 0.004
    assert len(kept) / len(out) == pytest.approx(1 - rate, abs=0.003)


def test_nothing_is_dropped_in_evaluation_and_nothing_saved():
    module = StochasticDepth(0.5).eval()
    x = torch.randn(8, 3)
    assert module(x) is x
    assert module.state_dict() == {}
    assert copy.deepcopy(module).keep_probability == 0.5


def test_every_block_of_a_segformer_has_its_own_rate():
    model = SegFormer(SegFormerConfig(variant="b0", drop_path=0.7))
    first, *others = [block.drop_path for block in model.blocks()]
    assert isinstance(first, nn.Identity)
    assert [round(1 - float(one.keep_probability), 4) for one in others] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
