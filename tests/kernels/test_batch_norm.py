"""Fused BatchNorm: a bottleneck by kernels against torchvision's in float64, with less memory."""

import copy

import pytest
import torch
from grids import grid
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision.models.resnet import Bottleneck

from faircl import kernels
from faircl.acceleration import batch_norm as module
from faircl.acceleration.fusion import replacements
from faircl.acceleration.recording import recording
from faircl.models.aspp import DeepLabHead, DeepLabPlusHead
from faircl.models.backbones import ResNet
from faircl.models.mlp_decoder import MlpDecoder

kernel = pytest.importorskip("faircl.kernels.batch_norm", reason="Triton comes with torch for Linux alone")
rows = pytest.importorskip("faircl.kernels.row_tiles", reason="Triton comes with torch for Linux alone")


@pytest.fixture
def by_kernels(by_kernels, monkeypatch):
    monkeypatch.setattr(rows, "TILE_SIZE", 64)  # so that a map has many tiles,
    monkeypatch.setattr(rows, "MAX_PROGRAMS", 6)  # and a program several
    monkeypatch.setattr(kernel, "MAX_CHANNELS", 4)


def packed(*shape, seed=0):
    x = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + 1
    return x.contiguous(memory_format=torch.channels_last)


def drawn(block, seed=0):
    """Give norms weights of both signs and statistics of their own."""
    draw = torch.Generator().manual_seed(seed)
    for norm in (one for one in block.modules() if isinstance(one, nn.BatchNorm2d)):
        for value, low in ((norm.weight, -1), (norm.bias, -1), (norm.running_mean, -1), (norm.running_var, 0.5)):
            value.data.copy_(torch.rand(value.shape, generator=draw) * 2 + low)
    return block.to(memory_format=torch.channels_last)


def bottleneck(kind="same", inputs=8, planes=2):
    torch.manual_seed(0)
    stride, dilation = (2, 1) if kind == "strided" else (1, 2)
    project = None
    if kind != "same":
        project = nn.Sequential(nn.Conv2d(inputs, 4 * planes, 1, stride, bias=False), nn.BatchNorm2d(4 * planes))
    return drawn(Bottleneck(inputs, planes, stride, project, dilation=dilation))


def lean(block):
    one = copy.deepcopy(block)
    for part, kind in replacements(one).items():
        part.__class__ = kind
    return one


def passed(block, x):
    """Return output, all gradients and all statistics of a pass."""
    x = x.detach().clone(memory_format=torch.channels_last).requires_grad_()
    out = block(x)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    (out * weight).sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in block.parameters()), *block.buffers()]


def close(found, exact, tolerance=2e-5, whole=False):
    """Compare tensors with tolerances relative to themselves or, where values cancel, to all together."""
    sizes = [float(other.detach().abs().max()) + 1e-3 for other in exact]
    for one, other, size in zip(found, exact, sizes, strict=True):
        limit = tolerance * (max(sizes) if whole else size)
        torch.testing.assert_close(one.detach().double(), other.detach().double(), atol=limit, rtol=tolerance)


@pytest.mark.parametrize("training", [True, False])
@grid("kind", ["strided", "same", "projected"])
def test_a_bottleneck_equals_torchvisions_in_float64(kind, training, by_kernels):
    block = bottleneck(kind).train(training)
    one, x = lean(block), packed(3, 8, 5, 7)
    assert kind == "same" or type(one.downsample) is module.FusedConvNorm
    close(passed(one, x), passed(copy.deepcopy(block).double(), x.double()))


@pytest.mark.slow
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 6), st.integers(2, 6), st.booleans(), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_any_shape(in_place, images, planes, height, columns, training, seed):
    with in_place() as patch:
        patch.setattr(rows, "TILE_SIZE", 32)
        patch.setattr(kernel, "MAX_CHANNELS", 8)
        block = drawn(Bottleneck(4 * planes, planes), seed).train(training and images * height > 1)
        x = packed(images, 4 * planes, height, columns, seed=seed)
        close(passed(lean(block), x), passed(copy.deepcopy(block).double(), x.double()), 2e-4, whole=True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("relu", [nn.ReLU(), None])
def test_a_norm_with_and_without_relu(relu, training, by_kernels):
    norm, x = drawn(nn.BatchNorm2d(6)).train(training), packed(3, 6, 5, 7)

    def run(norm, after):
        layer = nn.Module()
        layer.norm, layer.forward = norm, lambda x: after(x, norm)
        return layer

    fast = run(copy.deepcopy(norm), lambda x, norm: module.norm_relu(x, norm, relu))
    plain = run(norm.double(), lambda x, norm: norm(x) if relu is None else relu(norm(x)))
    close(passed(fast, x), passed(plain, x.double()))


@grid(
    ("make", "shapes", "norms"),
    [
        (lambda: DeepLabHead(8, (1, 2)), [(2, 8, 6, 6)], 5),
        (lambda: DeepLabPlusHead((4, 8), (1, 2)), [(2, 4, 6, 6), (2, 8, 3, 3)], 7),
        (lambda: MlpDecoder((4, 8), 8), [(2, 4, 6, 6), (2, 8, 3, 3)], 1),
    ],
    quick=lambda case: case[2] == 1,
)
def test_decoders(make, shapes, norms, monkeypatch, recorded):
    torch.manual_seed(0)
    decoder = lean(drawn(make()).train())
    for part in decoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    plain, stages = copy.deepcopy(decoder).double(), tuple(map(packed, *zip(*shapes, strict=True)))
    used, original = [], kernel.norm_relu
    monkeypatch.setattr(kernels, "usable", lambda tensor: tensor.dtype != torch.float64)
    monkeypatch.setattr(kernel, "norm_relu", lambda *given, **more: used.append(1) or original(*given, **more))
    results = []
    for one, kind in ((decoder, torch.float32), (plain, torch.float64)):
        given = tuple(x.to(kind, copy=True).requires_grad_() for x in stages)
        out = one(given)
        (out * torch.arange(out.numel()).view(out.shape).cos().to(kind)).sum().backward()
        gradients = [x.grad for x in (*given, *one.parameters()) if x.grad is not None]
        results.append([out, *one.buffers(), *gradients])
    assert len(used) == norms
    close(*results, 1e-4, whole=True)


def test_rows_of_modules(by_kernels, monkeypatch):
    """Sequences with any layers after the norm."""
    used, original = [], kernel.norm_relu
    monkeypatch.setattr(kernel, "norm_relu", lambda *given, relu: used.append(relu) or original(*given, relu=relu))
    x = packed(2, 4, 6, 6)
    for after in ([], [nn.ReLU()], [nn.GELU()], [nn.ReLU(), nn.Hardtanh()], [nn.LeakyReLU(), nn.ReLU()]):
        row = drawn(module.FusedConvNorm(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), *after))
        plain = nn.Sequential(*copy.deepcopy(row)).double()
        close([row(x)], [plain(x.double())], 1e-4)
    assert used == [False, True, False, True, False]


def test_one_value_has_no_variance(by_kernels):
    norm = nn.BatchNorm2d(4)
    with pytest.raises(ValueError, match="more than 1 value"):
        module.norm_relu(packed(1, 4, 1, 1), norm, nn.ReLU())
    assert torch.equal(module.norm_relu(packed(1, 4, 1, 1), norm.eval(), None), norm(packed(1, 4, 1, 1)))


def test_moments_of_values_far_from_zero(by_kernels):
    """Large means: a variance from squares would lose all digits."""
    x = packed(2, 6, 9, 9) + 3000
    running = torch.zeros(6), torch.ones(6)
    mean, scale = kernel.moments(x, 1e-5, *running, 0.1)
    variance, exact = torch.var_mean(x.double(), (0, 2, 3), correction=0)
    torch.testing.assert_close(mean.double(), exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(scale.double(), (variance + 1e-5).rsqrt(), rtol=1e-3, atol=0)
    torch.testing.assert_close(running[0].double(), 0.1 * exact, rtol=1e-6, atol=0)
    estimate = 0.9 + 0.1 * x.double().var((0, 2, 3))
    torch.testing.assert_close(running[1].double(), estimate, rtol=1e-3, atol=0)


@pytest.mark.slow
def test_short_numbers_stay_short(by_kernels):
    block = bottleneck("projected").train()
    x = packed(4, 8, 12, 12)
    exact = passed(copy.deepcopy(block).double(), x.double())
    with torch.autocast("cpu", torch.bfloat16):
        found, plain = (passed(one, x.bfloat16()) for one in (lean(block), copy.deepcopy(block)))
    assert (found[0].dtype, found[1].dtype) == (torch.bfloat16, torch.bfloat16)
    assert all(one.dtype in (torch.float32, torch.int64) for one in found[2:])

    def error(values):  # mean: rounding can change the sign of single values before ReLU
        parts = [(one - other).norm() / (other.norm() + 1e-6) for one, other in zip(values, exact, strict=True)]
        return float(torch.stack(parts).mean())

    exact, found, plain = ([value.double() for value in values] for values in (exact, found, plain))
    assert error(found) <= 1.3 * error(plain) < 0.2


def test_gradients_are_repeated_bit_for_bit(by_kernels):
    block, x = bottleneck("strided").train(), packed(3, 8, 5, 7)
    runs = [passed(lean(block), x) for _ in range(2)]
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))


def test_only_what_convolutions_return_is_kept(by_kernels):
    def kept(block):
        found = {}

        def note(value):
            found[value.untyped_storage().data_ptr()] = value
            return value

        with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
            block(packed(2, 8, 8, 8).requires_grad_())
        return sum(one.numel() for one in found.values() if one.ndim == 4 and one.shape[-2:] == (8, 8))

    block, pixels = bottleneck().train(), 2 * 8 * 8
    assert kept(lean(block)) == (8 + 2 + 2 + 8 + 8) * pixels  # input, three convolutions, output
    assert kept(block) == (8 + 2 * 2 + 2 * 2 + 8 + 8) * pixels


@pytest.mark.parametrize("frozen", ["conv2", "bn2", "everything before"])
def test_what_is_frozen_gets_no_gradient(frozen, by_kernels):
    block, x = bottleneck().train(), packed(2, 8, 5, 5)
    if frozen == "everything before":
        block.conv1.requires_grad_(False)
        block.bn1.requires_grad_(False)
    else:
        getattr(block, frozen).requires_grad_(False)
    results = []
    for one in (lean(block), copy.deepcopy(block).double()):
        given = x.to(one.conv1.weight.dtype).requires_grad_(frozen != "everything before")
        one(given).square().sum().backward()
        results.append([p.grad for p in one.parameters()])
    assert any(one is None for one in results[0])
    for one, other in zip(*results, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one.double(), other, atol=1e-3, rtol=1e-4)


def test_what_is_not_a_number_shows(by_kernels):
    x = packed(2, 8, 5, 5)
    x[0, 3, 2, 2] = torch.nan
    assert torch.isnan(lean(bottleneck()).train()(x)).any()


def test_kernels_are_for_recordings(monkeypatch):
    monkeypatch.setattr(kernels, "usable", lambda tensor: True)
    monkeypatch.setattr(kernel, "_run_normalise", lambda *_: pytest.fail("a kernel was used"))
    block, x = bottleneck(), packed(2, 8, 5, 5)
    with recording():
        with recording():
            pass
        with pytest.raises(pytest.fail.Exception):
            lean(block)(x)
    assert torch.equal(lean(block)(x), block(x))


@pytest.mark.parametrize(
    "why", ["hook", "relu hook", "forward", "rows", "sync", "momentum", "statistics", "bias", "padding", "activation"]
)
def test_other_layers_and_layouts_take_the_plain_way(why, by_kernels, monkeypatch):
    for name in ("norm_relu", "norm_relu_conv", "norm_add_relu"):
        monkeypatch.setattr(kernel, name, lambda *_: pytest.fail("a kernel was used"))
    norm, relu = drawn(nn.BatchNorm2d(4)), nn.ReLU(inplace=True)
    conv = nn.Conv2d(4, 4, 3, padding=1, bias=why == "bias")
    x, other = packed(2, 4, 6, 6), packed(2, 4, 6, 6, seed=2)
    if why == "hook":
        norm.register_forward_hook(lambda *_: None)
    elif why == "relu hook":
        relu.register_forward_hook(lambda *_: None)
    elif why == "forward":
        relu.forward = torch.relu
    elif why == "rows":
        x = x.contiguous()
    elif why == "sync":
        norm = type("Other", (nn.BatchNorm2d,), {})(4)
    elif why == "momentum":
        norm.momentum = None
    elif why == "statistics":
        norm = nn.BatchNorm2d(4, track_running_stats=False)
    elif why == "padding":
        conv.padding_mode = "reflect"
    elif why == "activation":
        relu = nn.LeakyReLU(0.2)
    expected = conv(relu(copy.deepcopy(norm)(x)))
    assert torch.equal(module.norm_relu_conv(x, copy.deepcopy(norm), relu, conv), expected)
    if why not in ("bias", "padding"):
        expected = relu(copy.deepcopy(norm)(x) + other)
        torch.testing.assert_close(module.norm_add_relu(x, copy.deepcopy(norm), other, relu), expected)
        torch.testing.assert_close(module.norm_relu(x, norm, relu), relu(copy.deepcopy(norm)(x)))


@pytest.mark.slow
def test_a_backbone_by_kernels_is_torchvisions(monkeypatch, recorded):
    torch.manual_seed(0)
    plain, image = drawn(ResNet("resnet50", 16, "v1.5")).train(), packed(2, 3, 32, 32)
    backbone = lean(plain)
    assert all(type(block) is module.FusedBottleneck for block in backbone.blocks())
    expected = plain(image)
    used, original = [], kernel.norm_relu_conv
    monkeypatch.setattr(kernels, "usable", lambda tensor: True)
    monkeypatch.setattr(kernel, "norm_relu_conv", lambda *given: used.append(1) or original(*given))
    stages = backbone(image)
    assert len(used) == 2 * 16
    close(stages[:2], expected[:2], 1e-3)
    close(list(backbone.layer1.buffers()), list(plain.layer1.buffers()), 1e-4)
