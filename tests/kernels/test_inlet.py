"""Gradients of L_cluster and L_cons, added where others come in: the same gradient, and nobody else's is touched."""

from functools import partial

import pytest
import torch
from torch import nn

from faircl import kernels
from faircl.models.inlet import Inlet, add_flat, with_inlet
from faircl.models.small import Small, SmallConfig

consistency = pytest.importorskip("faircl.kernels.consistency", reason="Triton comes with torch for Linux alone")
cluster = pytest.importorskip("faircl.kernels.cluster", reason="Triton comes with torch for Linux alone")


def gradients(use_inlet, weight=1.0, layout=torch.contiguous_format, sides=(3, 4), dropped=False, shape=(8, 4)):
    """Gradients of an embedding and of a second map that shares its loss, with and without an inlet."""
    gen, (width, prototypes) = torch.Generator().manual_seed(0), shape
    source = torch.randn((2, width, *sides), generator=gen).contiguous(memory_format=layout).requires_grad_()
    head = torch.randn((3, width, 1, 1), generator=gen)
    other = torch.randn((2, width, *sides), generator=gen).requires_grad_()
    labels = torch.randint(prototypes, (2, sides[0] * sides[1]), generator=gen)
    points = torch.randn((prototypes, width), generator=gen)
    embedding = 1.0 * source
    scale = 1.5 * (torch.rand((2, width, 1, 1), generator=gen) < 0.7) if dropped else None
    classified, inlet = embedding if scale is None else embedding * scale, None
    if use_inlet:
        classified, inlet = with_inlet(embedding, scale)
    logits = torch.nn.functional.conv2d(classified, head)
    args = (
        embedding.flatten(2),
        labels,
        labels < prototypes - 1,
        points,
        torch.ones(prototypes).bool(),
        1.1 * width**0.5,
    )
    pull, push = cluster.cluster_sums(*args, inlet)
    shared = (embedding + other).square().sum()  # one gradient tensor for both maps
    (logits.square().mean() + weight * (pull + 0.3 * push) + 0.1 * shared).backward()
    return source.grad, other.grad, inlet


@pytest.mark.parametrize("shape", [(8, 4), (70, 150), (40, 260)])  # one block of prototypes, two, more
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_is_the_same(layout, dropped, shape, monkeypatch):
    plain, plain_other, _ = gradients(False, layout=layout, dropped=dropped, shape=shape)
    added, add = [], cluster.add_flat
    monkeypatch.setattr(cluster, "add_flat", lambda *args: [added.append(args), add(*args)][1])
    found, other, inlet = gradients(True, layout=layout, dropped=dropped, shape=shape)
    assert torch.allclose(found, plain, atol=1e-5 * float(plain.abs().max()))
    assert torch.equal(other, plain_other)
    assert len(added) == 1
    assert not inlet.open
    assert not inlet.additions
    without, _, _ = gradients(True, weight=0.0, layout=layout, dropped=dropped, shape=shape)
    assert not torch.allclose(without, plain, atol=1e-2)


def test_a_loss_whose_inlet_is_closed_returns_its_gradient():
    gen = torch.Generator().manual_seed(0)
    features = torch.randn((1, 8, 6), generator=gen).requires_grad_()
    args = (torch.zeros((1, 6), dtype=torch.int64), torch.ones(1, 6).bool(), torch.randn((2, 8), generator=gen))
    inlet = Inlet()
    inlet.open = False
    pull, _ = cluster.cluster_sums(features, *args, torch.ones(2).bool(), 3.0, inlet)
    pull.backward()
    assert features.grad.abs().sum() > 0
    assert not inlet.additions


@pytest.mark.parametrize("scale", [None, torch.arange(8.0).view(1, 8, 1, 1)])
def test_rows_with_gaps_between_them(scale):
    whole = torch.ones(1, 8, 3, 5)
    gradient = whole[..., :4]
    saved = cluster._Saved(
        torch.randn(1, 8, 12, generator=torch.Generator().manual_seed(0)),
        torch.zeros((1, 12), dtype=torch.int32),
        torch.ones(2, 8),
        torch.full((2,), 8.0),
        torch.tensor(8.0),
        3.0,
    )
    weights = torch.tensor([1.0, 0.5, 2.0])
    add_flat(partial(cluster._write_gradient, saved, weights), gradient, scale)
    expected = torch.empty(1, 8, 12)
    cluster._write_gradient(saved, weights, expected, add=False)
    assert torch.equal(gradient.flatten(2), expected + (1 if scale is None else scale.flatten(2)))
    assert whole[..., 4].eq(1).all()


def test_one_number_that_stands_for_many_is_left_alone():
    inlet, one = Inlet(), torch.ones(1)
    inlet.additions.append(lambda gradient, scale: gradient.add_(1))
    assert inlet.add_all(one.expand(4)).tolist() == [2.0] * 4
    assert one.tolist() == [1.0]


def test_scales_come_once_however_many_add():
    inlet = Inlet(torch.tensor(3.0))
    for _ in range(2):
        inlet.additions.append(lambda gradient, scale: gradient.mul_(1 if scale is None else scale).add_(1))
    assert inlet.add_all(torch.full((4,), 2.0)).tolist() == [8.0] * 4
    assert Inlet(torch.tensor(3.0)).add_all(torch.full((4,), 2.0)).tolist() == [6.0] * 4
    assert Inlet().add_all(torch.full((4,), 2.0)).tolist() == [2.0] * 4


@pytest.mark.parametrize("why", ["plain", "rate one", "no dropout", "evaluation", "hook", "another module"])
def test_channels_are_dropped_as_torch_drops_them(why, monkeypatch):
    torch.manual_seed(0)
    rate = {"rate one": 1.0, "no dropout": 0.0}.get(why, 0.4)
    model = Small(SmallConfig(width=8, embedding=6, norm="group")).train(why != "evaluation")
    model.classifier.grow(3)
    model.dropout = nn.Dropout(rate) if why == "another module" else nn.Dropout2d(rate)
    model.dropout.train(why != "evaluation")
    if why == "hook":
        model.dropout.register_forward_hook(lambda module, inputs, output: 2 * output)
    image, results = torch.rand(2, 3, 16, 16), []
    for by_kernels in (False, True):
        monkeypatch.setattr(kernels, "usable", lambda x, by_kernels=by_kernels: by_kernels)
        torch.manual_seed(1)
        model.zero_grad()
        out = model(image)
        assert (out.inlet is not None) == by_kernels
        (out.logits * torch.arange(3)[:, None, None]).sum().backward()
        results.append([out.logits.detach(), *(p.grad.clone() for p in model.parameters())])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_consistency_adds_to_the_gradient_of_cross_entropy(layout, kind, monkeypatch):
    gen = torch.Generator().manual_seed(0)
    drawn = (2 * torch.randn((2, 5, 4, 6), generator=gen)).to(kind).contiguous(memory_format=layout)
    labels = torch.randint(5, (2, 4, 6), generator=gen)
    colours, valid = torch.rand((2, 3, 4, 6), generator=gen), torch.rand((2, 4, 6), generator=gen) < 0.8
    added, add = [], consistency.add_flat
    monkeypatch.setattr(consistency, "add_flat", lambda *args: [added.append(args), add(*args)][1])
    found = []
    for use in (False, True):
        source = drawn.clone().requires_grad_()
        logits = 1 * source
        scored, inlet = with_inlet(logits) if use else (logits, None)
        seg = torch.nn.functional.cross_entropy(scored.float(), labels)
        total, _ = consistency.pair_sums(logits, colours, valid, 0.3, 0.5, 1, "smooth", inlet)
        (seg + 0.01 * total).backward()
        found.append(source.grad)
    assert len(added) == 1
    assert not inlet.open
    assert found[1].stride() == found[0].stride()
    assert torch.allclose(*found, atol=1e-6 if kind == torch.float32 else 2**-8)
    assert (found[0] - found[1]).abs().max() <= 2**-7 * found[0].abs().max()
