"""The loss of prototype replay against a plain loop."""

import math

import pytest
import torch

from faircl.losses.replay import replay_loss

K, N, C = 4, 3, 5


def drawn(seed=0):
    gen = torch.Generator().manual_seed(seed)
    logits = torch.randn((K, N, C), generator=gen, dtype=torch.float64)
    valid = torch.rand((K, N), generator=gen) > 0.3
    valid[0] = True
    return logits, valid, torch.rand(K, generator=gen, dtype=torch.float64) + 0.1


def by_loop(logits, valid, prior):
    total = weights = 0.0
    for c in range(len(logits)):
        losses = []
        for i in valid[c].nonzero()[:, 0].tolist():
            z = logits[c, i].tolist()
            losses.append(math.log(sum(math.exp(one) for one in z)) - z[c])
        if losses:
            total += prior[c].item() * sum(losses) / len(losses)
            weights += prior[c].item()
    return total / weights


@pytest.mark.parametrize("seed", range(4))
def test_it_equals_the_loop(seed):
    logits, valid, prior = drawn(seed)
    valid[1] &= seed % 2 == 0  # sometimes a class without a feature
    assert replay_loss(logits, valid, prior).item() == pytest.approx(by_loop(logits, valid, prior), rel=1e-12)


def test_gradients():
    logits, valid, prior = drawn(5)
    assert torch.autograd.gradcheck(lambda z: replay_loss(z, valid, prior), logits.requires_grad_())


def test_a_class_without_features_leaves_the_loss():
    logits, valid, prior = drawn(6)
    valid[2] = False
    other = logits.clone()
    other[2] = 1e4  # whatever stands there
    changed = prior.clone()
    changed[2] = 9.0
    assert replay_loss(other, valid, changed) == replay_loss(logits, valid, prior)
    kept = [0, 1, 3]
    order = [0, 1, 3, 2, 4]  # row c has features of channel c
    without = replay_loss(logits[kept][:, :, order], valid[kept], prior[kept])
    torch.testing.assert_close(replay_loss(logits, valid, prior), without)


def test_no_feature_at_all_is_zero_with_a_gradient_of_zero():
    logits, valid, prior = drawn(7)
    loss = replay_loss(logits.requires_grad_(), torch.zeros_like(valid), prior)
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_a_prior_so_small_that_its_sum_underflows_is_finite():
    logits, valid, _ = drawn(8)
    tiny = torch.full((K,), torch.finfo(torch.float32).tiny)
    assert replay_loss(logits.float(), valid, tiny).isfinite()
