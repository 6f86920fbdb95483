"""Layers with bias gradients by a kernel equal torch's layers, and are deterministic."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from faircl import kernels
from faircl.acceleration import bias as biases
from faircl.acceleration import fused
from faircl.models.segformer import SegFormer, SegFormerConfig

kernel = pytest.importorskip("faircl.kernels.column_sums", reason="Triton comes with torch for Linux alone")
rows = pytest.importorskip("faircl.kernels.row_tiles", reason="Triton comes with torch for Linux alone")


@pytest.fixture
def by_kernels(by_kernels, monkeypatch):
    monkeypatch.setattr(rows, "TILE_SIZE", 32)
    monkeypatch.setattr(rows, "MAX_PROGRAMS", 6)


@given(st.integers(1, 70), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_sums_of_columns(length, width, seed):
    x = torch.randn((length, width), generator=torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "TILE_SIZE", 16)
        patch.setattr(kernel, "MAX_COLUMNS", 8)
        patch.setattr(rows, "MAX_PROGRAMS", 5)
        torch.testing.assert_close(kernel.column_sums(x).double(), x.double().sum(0), atol=1e-5, rtol=1e-5)


LAYERS = {
    "linear": (lambda: nn.Linear(6, 5), (2, 7, 6)),
    "rows": (lambda: nn.Linear(6, 5), (9, 6)),
    "depthwise": (lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6), (2, 6, 5, 4)),
    "strided": (lambda: nn.Conv2d(6, 4, 4, stride=4), (2, 6, 8, 12)),
}


def fuse(module):
    kinds = {nn.Linear: biases.FusedBiasLinear, nn.Conv2d: biases.FusedBiasConv2d}
    for part in module.modules():
        part.__class__ = kinds.get(type(part), type(part))


def passed(layer, x):
    x = x.detach().clone().requires_grad_()
    out = layer(x)
    (out * torch.arange(out.numel()).view(out.shape).cos().to(out.dtype)).sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients_are_torchs(name, last, by_kernels, monkeypatch):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    plain = nn.Sequential(make())
    fast = copy.deepcopy(plain)
    fuse(fast)
    x = torch.randn(shape)
    if last and x.ndim == 4:
        x, fast = x.contiguous(memory_format=torch.channels_last), fast.to(memory_format=torch.channels_last)
    used, original = [], biases._bias_gradient
    monkeypatch.setattr(biases, "_bias_gradient", lambda grad: used.append(1) or original(grad))
    found = passed(fast, x)
    assert used == [1]
    fast.zero_grad()
    assert all(torch.equal(*pair) for pair in zip(found, passed(fast, x), strict=True))
    for one, other in zip(found, passed(plain.double(), x.double()), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-4, rtol=1e-5)


def test_frozen_and_without_gradients(by_kernels, monkeypatch):
    layer = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    fuse(layer)
    layer[0].requires_grad_(False)
    layer(torch.randn(5, 4)).sum().backward()
    assert layer[0].bias.grad is None
    assert torch.equal(layer[1].bias.grad, torch.full((2,), 5.0))
    monkeypatch.setattr(biases._Linear, "apply", lambda *_: pytest.fail("nothing is learned"))
    with torch.no_grad():
        layer(torch.randn(5, 4))


@pytest.mark.slow
def test_a_segformer_under_autocast(by_kernels, monkeypatch):
    torch.manual_seed(0)
    model = SegFormer(SegFormerConfig(variant="b0", drop_path=0)).train()
    image = torch.rand(2, 3, 32, 32)
    layers = [part for part in model.backbone.modules() if isinstance(part, (nn.Linear, nn.Conv2d))]
    results, used, original = [], [], biases._bias_gradient
    for on in (True, False):
        monkeypatch.setattr(kernels, "usable", lambda tensor: False)
        monkeypatch.setattr(biases, "can_fuse", lambda x, on=on: on)
        monkeypatch.setattr(biases, "_bias_gradient", lambda grad: used.append(1) or original(grad))
        model.zero_grad()
        with fused(model), torch.autocast("cpu", torch.bfloat16):
            stages, _ = model.features(image, False)
        sum(stage.float().square().mean() for stage in stages).backward()
        results.append([p.grad.clone() for p in model.backbone.parameters()])
    assert len(used) == len(layers) == sum(part.bias is not None for part in layers)
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype
        assert (one - other).norm() <= 0.02 * other.norm() + 1e-6
