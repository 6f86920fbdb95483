"""The four variants of L_class against loops, and which of them is fair."""

import math

import loop_losses as loops
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from faircl.losses import class_histogram, importance_weights, kl_from_uniform, literal_class_loss, logit_offset

UNFAIR = torch.tensor([0.7, 0.2, 0.07, 0.03], dtype=torch.float64)
shares = (
    st.lists(st.integers(0, 10_000), min_size=2, max_size=12)
    .filter(any)
    .map(lambda counts: torch.tensor(counts).double() / sum(counts))
)


def loop_weights(share, gamma, low, high):
    p, k = share.tolist(), len(share)
    raw = [min(max((1 / (k * v)) ** gamma, low), high) if v else high for v in p]
    mean = sum(v * w for v, w in zip(p, raw, strict=True))
    return [w / mean for w in raw]


@pytest.mark.parametrize("gamma", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("clip", [(0.2, 5.0), (0.9, 1.1), (1e-6, 1e6)])
def test_importance_equals_the_loop(gamma, clip):
    share = torch.tensor([0.9, 0.06, 0.04, 0.0], dtype=torch.float64)
    assert importance_weights(share, gamma, clip).tolist() == pytest.approx(loop_weights(share, gamma, *clip), abs=1e-6)


@given(shares, st.floats(0.01, 1))
@settings(max_examples=60, deadline=None)
def test_importance_has_mean_one_and_favours_rare_classes(share, gamma):
    weight = importance_weights(share, gamma, (0.2, 5.0))
    assert weight.isfinite().all()
    assert float((share * weight).sum()) == pytest.approx(1, abs=1e-9)
    order = share.argsort()
    assert (weight[order].diff() <= 1e-12).all()
    assert float(weight.max() / weight.min()) <= 25 + 1e-9  # the ratio of the clips


def test_importance_by_hand():
    # q/p = (1/1.8, 5), gamma 1: weights equalise the classes' total influence, p·w = 1/2 each.
    weight = importance_weights(torch.tensor([0.9, 0.1], dtype=torch.float64), 1.0, (1e-3, 1e3))
    assert weight.tolist() == pytest.approx([1 / 1.8, 5.0], abs=1e-9)


def test_importance_without_effect():
    share = torch.tensor([0.9, 0.1, 0.0], dtype=torch.float64)
    assert importance_weights(share, 0.0, (0.2, 5.0)).tolist() == pytest.approx([1, 1, 1])
    assert importance_weights(torch.full((4,), 0.25), 0.5, (0.2, 5.0)).tolist() == pytest.approx([1] * 4)


def test_a_class_never_seen_gets_the_upper_clip():
    weight = importance_weights(torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64), 0.5, (0.2, 3.0))
    assert float(weight[2] / weight[0]) == pytest.approx(3 / (2 / 3) ** 0.5, abs=1e-9)


def test_offset_equals_the_loop():
    share = torch.tensor([0.7, 0.25, 0.05, 0.0], dtype=torch.float64)
    expected = [0.5 * math.log(max(p, 1e-6) / 0.25) for p in share.tolist()]
    assert logit_offset(share, 0.5).tolist() == pytest.approx(expected, abs=1e-6)
    assert logit_offset(torch.full((3,), 1 / 3, dtype=torch.float64)).tolist() == pytest.approx([0, 0, 0])


def test_offset_alone_predicts_the_prior():
    """Flat logits plus the offset give p: the network need not learn it, and without it treats classes alike."""
    torch.testing.assert_close(logit_offset(UNFAIR).softmax(0), UNFAIR)


def random_logits(seed=0):
    gen = torch.Generator().manual_seed(seed)
    return torch.randn((2, 4, 3, 5), generator=gen).double(), torch.rand((2, 3, 5), generator=gen) < 0.6


def test_histogram_equals_the_loop():
    logits, valid = random_logits()
    assert 0 < valid.sum() < valid.numel()
    assert class_histogram(logits, valid).tolist() == pytest.approx(loops.histogram(logits, valid), abs=1e-6)
    assert class_histogram(logits, valid).sum().item() == pytest.approx(1)


def test_histogram_of_nothing_is_finite():
    logits, valid = random_logits()
    logits.requires_grad_()
    histogram = class_histogram(logits, torch.zeros_like(valid))
    assert histogram.tolist() == [0] * 4
    (kl_from_uniform(histogram) + literal_class_loss(histogram)).backward()
    assert logits.grad.eq(0).all()


@given(shares)
@settings(max_examples=60, deadline=None)
def test_divergences_equal_the_loop(share):
    p, q = [max(v, 1e-6) for v in share.tolist()], 1 / len(share)
    kl = sum(q * math.log(q / v) for v in p)
    literal = sum(v * math.log(q / w) for v, w in zip(share.tolist(), p, strict=True))
    assert float(kl_from_uniform(share)) == pytest.approx(kl, abs=1e-6)
    assert float(literal_class_loss(share)) == pytest.approx(literal, abs=1e-6)


def test_published_numbers():
    assert float(kl_from_uniform(UNFAIR)) == pytest.approx(0.647, abs=5e-4)
    assert float(literal_class_loss(UNFAIR)) == pytest.approx(-0.523, abs=5e-4)
    uniform = torch.full((4,), 0.25).double()
    assert float(kl_from_uniform(uniform)) == pytest.approx(0, abs=1e-12)
    assert float(literal_class_loss(uniform)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("term", [kl_from_uniform, literal_class_loss])
def test_gradients(term):
    logits, valid = random_logits()
    assert loops.grad_ok(lambda z: term(class_histogram(z, valid)), logits)
    assert loops.grad_ok(lambda z: class_histogram(z, valid), logits)


@pytest.mark.parametrize(("term", "fairer"), [(kl_from_uniform, True), (literal_class_loss, False)])
def test_descent_makes_kl_fair_and_literal_unfair(term, fairer):
    logits = UNFAIR.log().view(1, 4, 1, 1).repeat(1, 1, 2, 2).requires_grad_()
    valid = torch.ones(1, 2, 2).bool()
    optimizer = torch.optim.SGD([logits], lr=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        term(class_histogram(logits, valid)).backward()
        optimizer.step()
    spread = class_histogram(logits.detach(), valid)
    if fairer:
        assert spread.tolist() == pytest.approx([0.25] * 4, abs=0.01)
    else:
        assert float(spread[0]) > 0.9
        assert float(spread[3]) < 0.03
