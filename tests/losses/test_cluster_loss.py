"""cluster_loss, Eqn 8-9, against a loop over pixels and prototypes."""

import loop_losses as loops
import pytest
import torch

from faircl.labels import IGNORE
from faircl.losses import cluster_loss

EVERY = torch.ones(4, dtype=torch.bool)


def case(seed=0, pixels=40, width=5):
    gen = torch.Generator().manual_seed(seed)
    features = torch.randn((pixels, width), generator=gen).double() * 2
    labels = torch.randint(4, (pixels,), generator=gen)
    labels[torch.rand(pixels, generator=gen) < 0.2] = IGNORE
    prototypes = torch.randn((4, width), generator=gen).double() * 2
    return features, labels, prototypes


@pytest.mark.parametrize("order", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("active", [[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
def test_equals_the_loop(active, order):
    features, labels, prototypes = case()
    active = torch.tensor(active, dtype=torch.bool)
    pull, push = cluster_loss(features, labels, prototypes, active, 5.0, order)
    expected = loops.cluster(features, labels, prototypes, active, 5.0, order)
    assert (float(pull), float(push)) == pytest.approx(expected, abs=1e-6)
    assert pull.shape == push.shape == ()


def test_the_case_has_hinges_on_both_sides():
    features, _, prototypes = case()
    distances = [loops.distance(f, p) for f in features.tolist() for p in prototypes.tolist()]
    assert min(distances) < 5 < max(distances)


@pytest.mark.parametrize("order", [2.0, 3.5])
def test_gradient(order):
    features, labels, prototypes = case(pixels=9)

    def total(f):
        loss = cluster_loss(f, labels, prototypes, torch.tensor([1, 1, 0, 1]).bool(), 5.0, order)
        return loss.pull + 0.3 * loss.push

    assert loops.grad_ok(total, features)


def test_by_hand():
    # One pixel of class 0 at 3-4-5 from its prototype, 1 from the other; one ignored pixel anywhere.
    features = torch.tensor([[3.0, 4.0], [9.0, 9.0]]).double()
    prototypes = torch.tensor([[0.0, 0.0], [3.0, 5.0]]).double()
    pull, push = cluster_loss(features, torch.tensor([0, IGNORE]), prototypes, torch.ones(2).bool(), 10.0)
    assert float(pull) == pytest.approx(5, abs=1e-9)
    assert float(push) == pytest.approx(9, abs=1e-9)


def test_push_stops_at_the_margin():
    features = torch.tensor([[0.0, 0.0]]).double().requires_grad_()
    prototypes = torch.tensor([[0.0, 0.0], [3.0, 4.0]]).double()
    for margin, expected in ((4.9, 0.0), (5.5, 0.5)):
        push = cluster_loss(features, torch.tensor([0]), prototypes, torch.ones(2).bool(), margin).push
        (gradient,) = torch.autograd.grad(push, features)
        assert push.item() == pytest.approx(expected, abs=1e-9)
        assert gradient.norm().item() == pytest.approx(1.0 if expected else 0.0, abs=1e-9)


def test_one_class_only_has_no_push():
    features, labels, prototypes = case()
    labels = labels.where(labels == IGNORE, 0)
    pull, push = cluster_loss(features, labels, prototypes[:1], torch.ones(1).bool(), 5.0)
    assert float(pull) > 0
    assert float(push) == 0


@pytest.mark.parametrize("active", [EVERY, ~EVERY])
def test_nothing_valid_is_zero_with_finite_gradients(active):
    features, labels, prototypes = case()
    features.requires_grad_()
    labels = torch.full_like(labels, IGNORE) if active.all() else labels
    loss = cluster_loss(features, labels, prototypes, active, 5.0)
    (loss.pull + loss.push).backward()
    assert loss.pull.item() == loss.push.item() == 0
    assert features.grad.eq(0).all()


def test_a_feature_on_its_prototype_has_a_finite_gradient():
    _, _, prototypes = case()
    features = prototypes.clone().requires_grad_()
    loss = cluster_loss(features, torch.arange(4), prototypes, EVERY, 20.0)
    (loss.pull + loss.push).backward()
    assert loss.pull.item() == pytest.approx(0, abs=1e-6)
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("width", [8, 256])
def test_small_distances_between_large_features_are_exact(width):
    prototypes = 30 * torch.randn((40, width), generator=torch.Generator().manual_seed(0))
    features = prototypes.clone()
    features[:, 0] += 0.01
    labels, every = torch.arange(40), torch.ones(40, dtype=torch.bool)
    pull = cluster_loss(features, labels, prototypes, every, 5.0).pull
    assert pull.item() == pytest.approx((features - prototypes).norm(dim=1).mean().item(), rel=1e-5)


def test_inactive_prototypes_do_not_matter():
    features, labels, prototypes = case()
    active = torch.tensor([1, 0, 1, 1]).bool()
    moved = prototypes.clone()
    moved[1] = 1e3
    a, b = (cluster_loss(features, labels, p, active, 5.0) for p in (prototypes, moved))
    torch.testing.assert_close(torch.stack(a), torch.stack(b))


def test_both_halves_are_means():
    """Neither half grows with the number of pixels; push does not with the number of classes."""
    features, labels, prototypes = case()
    once = cluster_loss(features, labels, prototypes, EVERY, 5.0)
    twice = cluster_loss(features.repeat(2, 1), labels.repeat(2), prototypes, EVERY, 5.0)
    torch.testing.assert_close(torch.stack(twice), torch.stack(once))
    others = torch.cat([prototypes[:1], prototypes[1:2].expand(7, -1)])
    few = cluster_loss(features, labels * 0, prototypes[:2], EVERY[:2], 5.0)
    many = cluster_loss(features, labels * 0, others, torch.ones(8).bool(), 5.0)
    torch.testing.assert_close(torch.stack(many), torch.stack(few))


def test_half_precision_features_are_measured_in_single():
    features, labels, prototypes = case()
    low = features.bfloat16()
    loss = cluster_loss(low, labels, prototypes.float(), EVERY, 5.0)
    expected = loops.cluster(low.float(), labels, prototypes, EVERY, 5.0)
    assert loss.pull.dtype == torch.float32
    assert (float(loss.pull), float(loss.push)) == pytest.approx(expected, rel=1e-4)


def test_descent_gathers_the_own_class_and_parts_the_others():
    features, labels, prototypes = case(pixels=12)
    labels = labels.where(labels != IGNORE, 0)
    features.requires_grad_()
    optimizer = torch.optim.SGD([features], lr=2.0)
    before = [float(x) for x in cluster_loss(features.detach(), labels, prototypes, EVERY, 2.0)]
    for _ in range(100):
        optimizer.zero_grad()
        sum(cluster_loss(features, labels, prototypes, EVERY, 2.0)).backward()
        optimizer.step()
    after = [float(x) for x in cluster_loss(features.detach(), labels, prototypes, EVERY, 2.0)]
    assert after[0] < 0.2 * before[0]
    nearest = [min(range(4), key=lambda c: loops.distance(f, prototypes.tolist()[c])) for f in features.tolist()]
    assert nearest == labels.tolist()
