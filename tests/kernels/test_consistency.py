"""Kernels of L_cons against the plain path in float64, in Triton's interpreter."""

import pytest
import torch
from grids import grid
from hypothesis import given, settings
from hypothesis import strategies as st

from faircl import kernels
from faircl.losses.consistency import _PairSums, consistency_loss

consistency = pytest.importorskip("faircl.kernels.consistency", reason="Triton comes with torch for Linux alone")

FINE = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}
"""Tolerance of gradients; the interpreter cuts bfloat16 off where GPUs round."""
FORMS = ["smooth", "literal"]
SIGMAS = (0.3, 0.5)
LAYOUTS = {
    "contiguous": lambda maps: maps,
    "channels last": lambda maps: maps.contiguous(memory_format=torch.channels_last),
    "transposed": lambda maps: maps.transpose(2, 3).contiguous().transpose(2, 3),
    "every second": lambda maps: torch.stack([maps, 0 * maps], -1)[..., 0],
    "part of more": lambda maps: torch.nn.functional.pad(maps, (1, 2, 3, 1))[..., 3:-1, 1:-2],
    "expanded": lambda maps: maps[:1].expand_as(maps),
}


def case(images=2, classes=5, size=(4, 5), kind=torch.float32, void=0.2, seed=0):
    """Noise, some pixels void."""
    gen = torch.Generator().manual_seed(seed)
    logits = (2 * torch.randn((images, classes, *size), generator=gen)).to(kind)
    colours = torch.rand((images, 3, *size), generator=gen)
    return logits, colours, torch.rand((images, *size), generator=gen) >= void


def both(logits, colours, valid, reach=1, form="smooth", weight=1.0):
    """Sum, number and gradient of the kernels, then of the plain path in float64."""
    results = []
    for leaf, function, x in (
        (logits.detach().requires_grad_(), consistency.pair_sums, colours),
        (logits.detach().double().requires_grad_(), _PairSums.apply, colours.double()),
    ):
        total, pairs = function(leaf, x, valid, *SIGMAS, reach, form)
        (gradient,) = torch.autograd.grad(weight * total, leaf)
        results.append((total.detach(), pairs, gradient))
    return results


def assert_equal(logits, *inputs, **options):
    (total, pairs, gradient), (expected_total, expected_pairs, expected) = both(logits, *inputs, **options)
    assert total.dtype == torch.float32
    assert pairs.dtype == torch.int64
    assert gradient.dtype == logits.dtype
    assert pairs == expected_pairs
    assert total.item() == pytest.approx(expected_total.item(), rel=1e-5, abs=1e-6)
    # Beside the tolerance there is the rounding of probabilities, one part of 2^24 of at most one.
    assert (gradient.double() - expected).norm() <= FINE[logits.dtype] * expected.norm() + 1e-6
    return total, pairs, gradient


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    images=st.integers(1, 2),
    classes=st.sampled_from([1, 2, 5, 33, 70]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    reach=st.integers(1, 2),
    form=st.sampled_from(FORMS),
    kind=st.sampled_from(list(FINE)),
    layout=st.sampled_from(list(LAYOUTS)),
    void=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_sums_and_gradients_equal_float64(images, classes, height, width, reach, form, kind, layout, void, seed):
    logits, *rest = case(images, classes, (height, width), kind, void, seed)
    assert_equal(LAYOUTS[layout](logits), *rest, reach=reach, form=form)


@pytest.mark.parametrize("form", FORMS)
@grid("kind", FINE)
def test_several_tiles_and_blocks_of_channels(kind, form):
    total, pairs, gradient = assert_equal(*case(1, 40, (9, 11), kind), form=form)
    assert total > 1
    assert pairs > 100
    assert gradient.ne(0).any(1).float().mean() > 0.7


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (3, 2)])
def test_a_window_wider_than_the_map(size):
    _, pairs, _ = assert_equal(*case(1, 3, size, void=0.0), reach=3)
    pixels = size[0] * size[1]
    assert pairs == pixels * (pixels - 1) / 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradient_has_the_layout_of_dense_logits(layout):
    logits, *rest = case()
    logits = LAYOUTS[layout](logits)
    _, _, gradient = assert_equal(logits, *rest)
    if layout in ("contiguous", "channels last"):
        assert gradient.stride() == logits.stride()


@pytest.mark.parametrize("form", FORMS)
def test_a_weight_of_the_sum_is_one_of_its_gradient(form):
    _, _, plain = assert_equal(*case(), form=form)
    _, _, weighed = assert_equal(*case(), form=form, weight=-2.5)
    torch.testing.assert_close(weighed, -2.5 * plain)
    assert plain.abs().max() > 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_no_valid_pair(form):
    logits, colours, valid = case()
    alone = torch.zeros_like(valid)
    alone[0, 0, 0] = True
    for mask in (torch.zeros_like(valid), alone):
        (total, pairs, gradient), _ = both(logits, colours, mask, form=form)
        assert total == 0
        assert pairs == 0
        assert gradient.eq(0).all()


def test_sure_predictions():
    """Logits far apart, and one class ruled out: probabilities of zero and one."""
    logits, colours, _ = case(classes=4)
    logits, valid = 100 * logits, torch.ones((2, 4, 5)).bool()
    logits[:, 3] = float("-inf")
    total, _, gradient = assert_equal(logits, colours, valid)
    assert total > 1
    assert gradient.isfinite().all()


def test_void_pixels_may_hold_anything():
    logits, colours, valid = case()
    other = torch.where(valid[:, None], logits, 7 * torch.randn(logits.shape))
    (total, _, gradient), _ = both(logits, colours, valid)
    (other_total, _, other_gradient), _ = both(other, colours, valid)
    assert torch.equal(total, other_total)
    assert torch.equal(gradient, other_gradient)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_void_pixels_may_hold_no_numbers_and_others_may_not(value):
    logits, colours, valid = case()
    results = []
    for z in (logits, torch.where(valid[:, None], logits, value)):
        source = z.clone().requires_grad_()
        total, _ = consistency.pair_sums(source, colours, valid, *SIGMAS, 1, "smooth")
        total.backward()
        results.append((total.detach(), source.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    inside = valid.nonzero()[0]
    source = logits.clone()
    source[inside[0], :, inside[1], inside[2]] = torch.nan
    source.requires_grad_()
    total, _ = consistency.pair_sums(source, colours, valid, *SIGMAS, 1, "smooth")
    total.backward()
    assert total.isnan()
    assert source.grad.isnan().any()


@pytest.mark.parametrize("kind", FINE)
def test_repeated_bit_for_bit(kind):
    first, again = (both(*case(images=1, size=(9, 9), kind=kind))[0] for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_the_logits_alone_have_a_gradient():
    logits, colours, valid = case()
    logits.requires_grad_()
    colours.requires_grad_()
    consistency.pair_sums(logits, colours, valid, *SIGMAS, 1, "smooth")[0].backward()
    assert colours.grad is None
    assert logits.grad.ne(0).any()


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_takes_the_kernels_where_they_run(monkeypatch, form):
    logits, _, valid = case()
    image = torch.rand((2, 3, 8, 10), generator=torch.Generator().manual_seed(1))
    calls, original = [], consistency.pair_sums
    monkeypatch.setattr(consistency, "pair_sums", lambda *inputs: calls.append(1) or original(*inputs))
    plain = consistency_loss(image, logits, valid, *SIGMAS, 5, form)
    assert not calls
    monkeypatch.setattr(kernels, "usable", lambda tensor: True)
    torch.testing.assert_close(consistency_loss(image, logits, valid, *SIGMAS, 5, form), plain, rtol=1e-5, atol=1e-7)
    assert calls


def test_leading_channels_without_any_probability():
    logits = torch.randn(1, 20, 2, 2, generator=torch.Generator().manual_seed(0))
    logits[:, :17] = -torch.inf
    x, valid = torch.zeros(1, 3, 2, 2), torch.ones(1, 2, 2).bool()
    total, _ = consistency.pair_sums(logits, x, valid, 0.1, 0.5, 1, "smooth")
    expected, _ = consistency.pair_sums(logits[:, 17:].contiguous(), x, valid, 0.1, 0.5, 1, "smooth")
    assert total.isfinite()
    assert torch.allclose(total, expected)
