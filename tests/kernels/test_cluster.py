"""Kernels of L_cluster against the plain path in float64, in Triton's interpreter."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from faircl import kernels
from faircl.labels import IGNORE
from faircl.losses.cluster import _EuclideanSums, cluster_loss

cluster = pytest.importorskip("faircl.kernels.cluster", reason="Triton comes with torch for Linux alone")

FINE = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}
"""Tolerance of gradients; the interpreter cuts bfloat16 off where GPUs round."""
EVERY = torch.ones(8).bool()
LAYOUTS = {
    "contiguous": lambda maps: maps,
    "channels last": lambda maps: maps.mT.contiguous().mT,
    "every second": lambda maps: torch.stack([maps, 0 * maps], -1)[..., 0],
    "part of more": lambda maps: torch.nn.functional.pad(maps, (1, 2, 3, 1))[:, 3:-1, 1:-2],
    "expanded": lambda maps: maps[:1].expand_as(maps),
}


@pytest.fixture(scope="module", autouse=True)
def _products_of_bfloat16():
    """The interpreter keeps bfloat16 as integers, and multiplies matrices of these."""
    from triton.runtime import interpreter

    def values(operand):
        bits = operand.data
        return (bits.astype(np.uint32) << 16).view(np.float32) if bits.dtype == np.uint16 else bits.astype(np.float32)

    def dot(self, a, b, d, *_):
        return interpreter.TensorHandle(values(a) @ values(b) + d.data, d.dtype.scalar)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
        yield


def case(images=2, width=19, pixels=40, prototypes=5, kind=torch.float32, seed=0):
    """Maps with void pixels and with classes whose prototype is not active; hinges on both sides of √(2·width)."""
    gen = torch.Generator().manual_seed(seed)
    features = torch.randn((images, width, pixels), generator=gen).to(kind)
    centres = torch.randn((prototypes, width), generator=gen)
    active = torch.rand(prototypes, generator=gen) > 0.2
    active[0] = True
    labels = torch.randint(prototypes, (images, pixels), generator=gen)
    labels[0, 0] = 0
    valid = (torch.rand(labels.shape, generator=gen) > 0.2) & active[labels]
    valid[0, 0] = True
    return features, labels, valid, centres, active


def both(inputs, margin, weights=(0.1, 0.3)):
    """Sums and gradient of the kernels, then of the plain path in float64 to prototypes rounded as the features are."""
    features, labels, valid, centres, active = inputs
    rounded = centres.to(features.dtype)
    results = []
    for leaf, function, points in (
        (features.detach().requires_grad_(), cluster.cluster_sums, centres),
        (features.detach().double().requires_grad_(), _EuclideanSums.apply, rounded.double()),
    ):
        sums = torch.stack(function(leaf, labels, valid, points, active, margin))
        (gradient,) = torch.autograd.grad(sums @ torch.tensor(weights).to(sums), leaf)
        results.append((sums.detach(), gradient))
    return results


def assert_equal(inputs, margin, **options):
    (sums, gradient), (expected_sums, expected) = both(inputs, margin, **options)
    kind = inputs[0].dtype
    assert sums.dtype == torch.float32
    assert gradient.dtype == kind
    torch.testing.assert_close(sums.double(), expected_sums, rtol=1e-5 if kind != torch.bfloat16 else 1e-4, atol=1e-4)
    assert (gradient.double() - expected).norm() <= FINE[kind] * expected.norm()
    return gradient


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    images=st.integers(1, 2),
    width=st.sampled_from([5, 8, 16, 33, 70]),
    pixels=st.sampled_from([1, 7, 64, 130]),
    prototypes=st.sampled_from([1, 2, 16, 17, 70, 129, 165, 256, 260]),
    kind=st.sampled_from(list(FINE)),
    layout=st.sampled_from(list(LAYOUTS)),
    margin=st.floats(0.3, 2.5),
    seed=st.integers(0, 1000),
)
def test_sums_and_gradients_equal_float64(images, width, pixels, prototypes, kind, layout, margin, seed):
    inputs = case(images, width, pixels, prototypes, kind, seed)
    inputs = (LAYOUTS[layout](inputs[0]), *inputs[1:])
    assert_equal(inputs, margin * width**0.5)


@pytest.mark.parametrize("kind", FINE)
@pytest.mark.parametrize("prototypes", [5, 129, 260])
def test_every_path(prototypes, kind):
    """One block, two, and more than are held at once, in several parts of the width; most hinges act."""
    inputs = case(1, 140, 20, prototypes, kind)
    gradient = assert_equal(inputs, 2 * 140**0.5)
    assert gradient[0, :, inputs[2][0]].ne(0).any(0).all()
    assert gradient[0, :, ~inputs[2][0]].eq(0).all()


@pytest.mark.parametrize("kind", FINE)
def test_one_channel(kind):
    """One dimension: the gradient is the direction of the pull minus those of the pushes."""
    features = torch.tensor([[[0.0, 3.0, 7.5]]]).to(kind)
    inputs = (features, torch.tensor([[0, 0, 1]]), torch.ones((1, 3)).bool(), torch.tensor([[1.0], [5.0]]), EVERY[:2])
    (sums, gradient), _ = both(inputs, 4.0, weights=(1.0, 10.0))
    assert sums.tolist() == pytest.approx([1 + 2 + 2.5, 2], rel=1e-5)
    # Only the second pixel is within 4 of the other prototype.
    torch.testing.assert_close(gradient.flatten().float(), torch.tensor([-1.0, 11.0, 1.0]), rtol=2 * FINE[kind], atol=0)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (-2.0, 3.0), (1e-9, 1e-12), (0.0, 0.0)])
def test_weights_of_the_sums(weights):
    """Scaling a sum scales its gradient, however small the scale."""
    gradient = assert_equal(case(kind=torch.bfloat16), 6.0, weights=weights)
    assert gradient.ne(0).any() == any(weights)


@pytest.mark.parametrize("kind", FINE)
def test_far_from_zero(kind):
    """The terms of a distance are large and must cancel; prototypes are rounded as features are."""
    features, labels, valid, centres, active = case()
    inputs = ((features + 20).to(kind), labels, valid, centres + 20, active)
    (sums, gradient), (expected_sums, expected) = both(inputs, 6.0)
    torch.testing.assert_close(sums.double(), expected_sums, rtol=2e-4, atol=0)
    assert (gradient.double() - expected).norm() < max(FINE[kind], 1e-4) * expected.norm()
    exact = torch.stack(
        _EuclideanSums.apply((features + 20).double(), labels, valid, (centres + 20).double(), active, 6.0)
    )
    torch.testing.assert_close(sums.double(), exact, rtol=max(4 * FINE[kind], 1e-4), atol=0)


def test_far_apart():
    """The coefficients, weights over distances, would underflow in float16."""
    features, labels, valid, centres, active = case()
    inputs = ((1000 * features).half(), labels, valid, 1000 * centres, active)
    gradient = assert_equal(inputs, 6000.0, weights=(1e-3, 1e-3))
    assert gradient.abs().max() > 2e-4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradient_has_the_layout_of_dense_features(layout):
    features, *rest = case()
    features = LAYOUTS[layout](features)
    gradient = assert_equal((features, *rest), 6.0)
    if layout in ("contiguous", "channels last"):
        assert gradient.stride() == features.stride()


@pytest.mark.parametrize("kind", FINE)
def test_a_feature_on_its_prototype(kind):
    features, labels, valid, centres, active = case(kind=kind)
    centres = centres.to(kind).float()
    labels[:, :10], valid[:, :10] = 0, True
    features[:, :, :10] = centres[0, :, None].to(kind)
    (sums, gradient), (expected, _) = both((features, labels, valid, centres, active), 6.0)
    assert gradient.isfinite().all()
    torch.testing.assert_close(sums.double(), expected, rtol=1e-4, atol=1e-4 if kind == torch.float32 else 0.1)
    if kind == torch.float32:
        alone = both((features, 0 * labels, valid, centres[:1], active[:1]), 6.0)[0][1]
        assert alone[:, :, :10].eq(0).all()


@pytest.mark.parametrize("size", [0.0, 1e-7, 1.0])
def test_half_precision_equals_the_plain_path_in_half_precision(size):
    """Both clamp coefficients of features on a prototype to what float16 can hold."""
    features, labels, valid, centres, active = case()
    features, centres = (size * features).half(), (size * centres).half().float()
    labels[:, :10], valid[:, :10] = 0, True
    features[:, :, :10] = centres[0, :, None]
    found = []
    for function in (cluster.cluster_sums, _EuclideanSums.apply):
        leaf = features.detach().requires_grad_()
        sums = torch.stack(function(leaf, labels, valid, centres, active, 6.0))
        found.append((sums.detach(), *torch.autograd.grad(sums @ torch.tensor([0.1, 0.3]), leaf)))
    (sums, gradient), (plain_sums, plain) = found
    assert plain.isfinite().all()
    torch.testing.assert_close(sums, plain_sums, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(gradient, plain, rtol=2**-9, atol=1e-4)


@pytest.mark.parametrize("kind", FINE)
def test_zero_everywhere(kind):
    features, labels, valid, centres, active = case(kind=kind)
    (sums, gradient), _ = both((0 * features, labels, valid, 0 * centres, active), 6.0)
    assert sums[0] < 1e-10
    assert sums[1] == pytest.approx(6 * int(valid.sum()) * (int(active.sum()) - 1), rel=1e-5)
    assert gradient.eq(0).all()


@pytest.mark.parametrize("kind", FINE)
def test_close_to_the_own_prototype(kind):
    """In float32 the own distance is computed from differences, where ‖f‖² + ‖p‖² − 2·f·p would cancel."""
    features, labels, valid, centres, active = case(kind=torch.float32)
    features = (10 * centres[labels].mT + 1e-3 * features).to(kind)
    inputs = (features, labels, valid, 10 * centres, active)
    (sums, gradient), (expected_sums, expected) = both(inputs, 6.0)
    if kind == torch.float32:
        assert sums[0].item() == pytest.approx(expected_sums[0].item(), rel=1e-5)
        assert (gradient.double() - expected).norm() < 1e-3 * expected.norm()
    assert gradient.isfinite().all()


def test_no_valid_pixel():
    features, labels, valid, *rest = case()
    (sums, gradient), _ = both((features, labels, torch.zeros_like(valid), *rest), 6.0)
    assert sums.tolist() == [0, 0]
    assert gradient.eq(0).all()


def test_inactive_prototypes_do_not_matter():
    features, labels, valid, centres, active = case(prototypes=20)
    assert not active.all()
    far = centres.clone()
    far[~active] = 1e4
    (sums, gradient), _ = both((features, labels, valid, centres, active), 6.0)
    (other_sums, other_gradient), _ = both((features, labels, valid, far, active), 6.0)
    assert torch.equal(sums, other_sums)
    torch.testing.assert_close(gradient, other_gradient, rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("kind", FINE)
def test_repeated_bit_for_bit(kind):
    inputs = case(pixels=150, prototypes=20, kind=kind)
    (sums, gradient), _ = both(inputs, 6.0)
    (again, gradient_again), _ = both(inputs, 6.0)
    assert torch.equal(sums, again)
    assert torch.equal(gradient, gradient_again)


def test_the_features_alone_have_a_gradient():
    features, labels, valid, centres, active = case()
    features.requires_grad_()
    centres.requires_grad_()
    sum(cluster.cluster_sums(features, labels, valid, centres, active, 6.0)).backward()
    assert centres.grad is None
    assert features.grad.ne(0).any()


@pytest.mark.parametrize("order", [2.0, 1.0])
def test_the_loss_takes_the_kernels_where_they_run(monkeypatch, order):
    features, labels, valid, centres, active = case(images=1)
    maps, labels = features.view(1, 19, 5, 8), labels.where(valid, IGNORE).view(1, 5, 8)
    calls, original = [], cluster.cluster_sums
    monkeypatch.setattr(cluster, "cluster_sums", lambda *inputs: calls.append(1) or original(*inputs))
    plain = cluster_loss(maps, labels, centres, active, 6.0, order)
    assert not calls
    monkeypatch.setattr(kernels, "usable", lambda tensor: True)
    for shape in ((maps, labels), (maps.flatten(2)[0].t(), labels.flatten())):
        torch.testing.assert_close(cluster_loss(*shape, centres, active, 6.0, order), plain, rtol=1e-5, atol=1e-6)
    assert len(calls) == (2 if order == 2 else 0)
