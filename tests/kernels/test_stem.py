"""BatchNorm, ReLU and max-pooling in one against torch's three modules, in float64 and in 16 bits."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from faircl import kernels
from faircl.acceleration import batch_norm as module
from faircl.acceleration import fused
from faircl.models.backbones import ResNet

kernel = pytest.importorskip("faircl.kernels.stem", reason="Triton comes with torch for Linux alone")


def modules(width, seed=0):
    norm = nn.BatchNorm2d(width)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(width, generator=draw))  # some negative: the least value is then the largest
        norm.bias.copy_(torch.randn(width, generator=draw))
        norm.running_mean.copy_(torch.randn(width, generator=draw))
        norm.running_var.copy_(torch.rand(width, generator=draw) + 0.5)
    return norm, nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)


def maps(shape, seed=0):
    x = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + 1
    return x.contiguous(memory_format=torch.channels_last)


def run(x, norm, relu, pool, dtype=torch.float32):
    """Return output and all gradients, and the statistics afterwards."""
    norm = copy.deepcopy(norm).to(dtype if dtype == torch.float64 else torch.float32)
    x = x.detach().to(dtype).requires_grad_()
    out = module.norm_relu_pool(x, norm, relu, pool)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    (out * weight).sum().backward()
    return [out.detach(), x.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()]


def compare(shape, training, seed=0):
    norm, relu, pool = modules(shape[1], seed)
    norm.train(training)
    found = run(maps(shape, seed), norm, relu, pool)
    exact = run(maps(shape, seed), norm, relu, pool, torch.float64)
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape
        scale = float(other.abs().max()) + 1e-3
        torch.testing.assert_close(one.double(), other.double(), atol=3e-5 * scale, rtol=1e-5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(2, 4, 6, 8), (1, 3, 7, 5), (3, 16, 1, 9), (2, 1, 2, 1), (2, 5, 12, 11)])
def test_values_gradients_and_statistics_equal_float64(shape, training, by_kernels, monkeypatch):
    monkeypatch.setattr(kernel, "MAX_PROGRAMS", 2)  # so that a program has several tiles
    monkeypatch.setattr(kernel, "TILE_SIZE", 64)
    compare(shape, training)


@pytest.mark.slow
@given(st.integers(1, 3), st.integers(1, 9), st.integers(2, 11), st.integers(2, 11), st.booleans(), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_any_shape(in_place, images, width, height, columns, training, seed):
    with in_place() as patch:
        patch.setattr(kernel, "TILE_SIZE", 128)
        compare((images, width, height, columns), training, seed)


@pytest.mark.parametrize("training", [True, False])
def test_16_bits_are_those_of_torch(training, by_kernels, monkeypatch):
    norm, relu, pool = modules(8)
    norm.train(training)
    x = maps((2, 8, 10, 12))
    found = run(x, norm, relu, pool, torch.bfloat16)
    monkeypatch.setattr(kernels, "usable", lambda tensor: False)
    plain = run(x, norm, relu, pool, torch.bfloat16)
    torch.testing.assert_close(found[0], plain[0], atol=1e-3, rtol=2**-7)  # Triton's interpreter cuts bits off
    for one, other in zip(found[1:], plain[1:], strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one.float(), other.float(), atol=3e-2, rtol=3e-2)


def test_of_equal_values_the_first_has_the_gradient(by_kernels):
    norm, relu, pool = modules(1)
    norm.eval()
    with torch.no_grad():
        norm.weight.fill_(1)
        norm.bias.fill_(9)  # all above zero
    x = torch.ones(1, 1, 4, 4).contiguous(memory_format=torch.channels_last)
    found, exact = run(x, norm, relu, pool), run(x, norm, relu, pool, torch.float64)
    torch.testing.assert_close(found[1].double(), exact[1])


def test_what_is_not_a_number_shows(by_kernels):
    norm, relu, pool = modules(2)
    x = maps((1, 2, 6, 6))
    x[0, 1, 3, 3] = torch.nan
    out = module.norm_relu_pool(x, norm.eval(), relu, pool)
    assert torch.isnan(out[0, 1]).sum() == 4
    assert not torch.isnan(out[0, 0]).any()


def test_gradients_are_repeated_bit_for_bit_and_none_is_made_for_frozen_norms(by_kernels):
    norm, relu, pool = modules(4)
    runs = [run(maps((2, 4, 9, 9)), norm, relu, pool) for _ in range(2)]
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))
    norm.requires_grad_(False)
    x = maps((2, 4, 9, 9)).requires_grad_()
    module.norm_relu_pool(x, norm, relu, pool).sum().backward()
    assert norm.weight.grad is None
    assert x.grad is not None


@pytest.mark.parametrize("why", ["hook", "rows", "sync", "momentum"])
def test_other_norms_and_layouts_take_the_plain_way(why, by_kernels, monkeypatch):
    monkeypatch.setattr(kernel, "norm_relu_pool", lambda *_: pytest.fail("the kernel was used"))
    norm, relu, pool = modules(4)
    x = maps((2, 4, 6, 6))
    if why == "hook":
        norm.register_forward_hook(lambda *_: None)
    elif why == "rows":
        x = x.contiguous()
    elif why == "sync":
        norm = type("Other", (nn.BatchNorm2d,), {})(4)
    else:
        norm.momentum = None
    expected = pool(relu(copy.deepcopy(norm)(x)))
    assert torch.equal(module.norm_relu_pool(x, norm, relu, pool), expected)


@pytest.mark.slow
def test_a_backbone_is_the_same_with_it(by_kernels, monkeypatch):
    torch.manual_seed(0)
    backbone = ResNet("resnet50", 16, "v1.5").to(memory_format=torch.channels_last).train()
    image = torch.rand(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    used, original = [], kernel.norm_relu_pool
    monkeypatch.setattr(kernel, "norm_relu_pool", lambda *given: used.append(1) or original(*given))
    expected = torchvision_stages(copy.deepcopy(backbone), image)
    with fused(backbone):
        stages = backbone(image)
    assert used == [1]
    torch.testing.assert_close(stages[0], expected, atol=1e-4, rtol=1e-4)


def torchvision_stages(body, image):
    return body.layer1(body.maxpool(body.relu(body.bn1(body.conv1(image)))))
