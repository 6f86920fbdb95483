"""Losses for rare classes against loops over pixels."""

import math

import loop_losses as loops
import pytest
import torch

from faircl.labels import IGNORE
from faircl.losses import upsampled_cross_entropy
from faircl.losses.binary import upsampled_binary_cross_entropy
from faircl.losses.cross_entropy import pixel_cross_entropy, valid_mean
from faircl.losses.imbalance import effective_number_weights, pixel_seesaw, tilted_mean

SIZE = (5, 6)


def case(classes=4, coarse=(2, 3), seed=0):
    """The last class is absent, a third of the pixels is void, and one image may be void altogether."""
    gen = torch.Generator().manual_seed(seed)
    logits = torch.randn((2, classes, *coarse), generator=gen).double() * 2
    target = torch.randint(max(classes - 1, 1), (2, *SIZE), generator=gen)
    target[torch.rand((2, *SIZE), generator=gen) < 0.3] = IGNORE
    target[0, 0, 0] = 0
    return logits, target


def pixels(logits, target):
    """Yield (logits of the pixel, its target) for every pixel that counts."""
    planes, labels = loops.nested(logits), loops.nested(target)
    for image, rows in zip(planes, labels, strict=True):
        up = [loops.bilinear(plane, *SIZE) for plane in image]
        for i in range(SIZE[0]):
            for j in range(SIZE[1]):
                if rows[i][j] != IGNORE:
                    yield [plane[i][j] for plane in up], rows[i][j]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def likelihood(z, y, grouped=0):
    p = loops.softmax(z)
    return sum(p[:grouped]) if grouped and y == 0 else p[y]


@pytest.mark.parametrize("grouped", [0, 2])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_focal_equals_the_loop(classes, gamma, grouped):
    logits, target = case(classes)
    grouped = min(grouped, classes)
    chances = [likelihood(z, y, grouped) for z, y in pixels(logits, target)]
    expected = mean(-((1 - p) ** gamma) * math.log(p) for p in chances)
    found = upsampled_cross_entropy(logits, target, focal=gamma, grouped=grouped)
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_focal_has_a_finite_slope_where_a_pixel_is_certain():
    logits = torch.tensor([80.0, 0.0]).double().view(1, 2, 1, 1).requires_grad_()
    upsampled_cross_entropy(logits, torch.tensor([[[0, IGNORE]]]), focal=0.5).backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_binary_focal_and_weights_equal_the_loop(classes, gamma):
    logits, target = case(classes)
    weight = torch.linspace(0.5, 2, classes).double()
    expected = []
    for z, y in pixels(logits, target):
        total = 0.0
        for c, value in enumerate(z):
            p = 1 / (1 + math.exp(-value if c == y else value))
            total -= (1 - p) ** gamma * math.log(p)
        expected.append(float(weight[y]) * total)
    found = upsampled_binary_cross_entropy(logits, target, class_weight=weight, focal=gamma)
    assert float(found) == pytest.approx(mean(expected), abs=1e-6)


def seesaw(z, y, counts, p, q, grouped):
    own = range(grouped) if grouped and y == 0 else [y]
    sigma = loops.softmax(z)
    mine = sum(sigma[c] for c in own)
    total = sum(math.exp(z[c]) for c in own)
    for c in range(len(z)):
        if c not in own:
            m = (counts[c] / counts[y]) ** p if counts[c] < counts[y] else 1.0
            s = (sigma[c] / mine) ** q if sigma[c] > mine else 1.0
            total += m * s * math.exp(z[c])
    return math.log(total) - math.log(sum(math.exp(z[c]) for c in own))


@pytest.mark.parametrize("grouped", [0, 2])
@pytest.mark.parametrize(("p", "q"), [(0.8, 2.0), (0.8, 0.0), (0.0, 2.0)])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_seesaw_equals_the_loop(classes, p, q, grouped):
    logits, target = case(classes)
    grouped = min(grouped, classes)
    counts = [1000.0, 20.0, 300.0, 1.0][:classes]
    expected = mean(seesaw(z, y, counts, p, q, grouped) for z, y in pixels(logits, target))
    found = valid_mean(pixel_seesaw(logits, target, torch.tensor(counts).double().log(), p, q, grouped), target)
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_seesaw_without_its_factors_is_cross_entropy():
    logits, target = case()
    found = pixel_seesaw(logits, target, torch.zeros(4).double(), 0.8, 0.0, 3)
    assert torch.allclose(found, pixel_cross_entropy(logits, target, grouped=3), atol=1e-12)


def test_seesaw_spares_rare_classes():
    # A pixel of a frequent class that is right already: the rare one is pushed down less than by cross-entropy.
    logits = torch.tensor([2.0, 0.0]).double().view(1, 2, 1, 1).requires_grad_()
    target = torch.zeros((1, 1, 1), dtype=torch.int64)
    plain, spared = (
        torch.autograd.grad(loss.sum(), logits)[0][0, 1, 0, 0]
        for loss in (
            pixel_cross_entropy(logits, target),
            pixel_seesaw(logits, target, torch.tensor([9.0, 0.0]).double()),
        )
    )
    assert 0 < spared < 0.1 * plain


@pytest.mark.parametrize("tilt", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_tilted_equals_the_loop(classes, tilt):
    logits, target = case(classes)
    by_class = {}
    for z, y in pixels(logits, target):
        by_class.setdefault(y, []).append(-math.log(likelihood(z, y)))
    expected = math.log(mean(math.exp(tilt * mean(values)) for values in by_class.values())) / tilt
    found = tilted_mean(pixel_cross_entropy(logits, target), target, tilt, classes)
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_tilted_goes_from_the_mean_to_the_worst_class():
    loss, target = torch.tensor([[[1.0, 3.0, 5.0]]]).double(), torch.tensor([[[0, 0, 1]]])
    assert float(tilted_mean(loss, target, 1e-6, 3)) == pytest.approx(3.5, abs=1e-4)
    assert float(tilted_mean(loss, target, 200.0, 3)) == pytest.approx(5.0, abs=1e-2)


def test_tilted_adds_up_millions_of_pixels_and_knows_small_tilts():
    many = torch.full((4, 512, 512), 0.3)
    assert tilted_mean(many, torch.zeros(4, 512, 512).long(), 1.0, 21).item() == pytest.approx(0.3, rel=1e-6)
    loss, target = torch.tensor([[[1.0, 3.0, 5.0, 900.0]]]), torch.tensor([[[0, 0, 1, IGNORE]]])
    loss = loss.where(target != IGNORE, 0.0)
    for tilt in (1e-3, 1e-6, 1e-9):
        assert tilted_mean(loss, target, tilt, 3).item() == pytest.approx(3.5 + 1.5**2 / 2 * tilt, rel=1e-6)
    steep = torch.tensor([[[0.0, 2000.0]]], requires_grad=True)
    found = tilted_mean(steep, torch.tensor([[[0, 1]]]), 5.0, 2)
    assert found.item() == pytest.approx(2000 - math.log(2) / 5)
    assert torch.autograd.grad(found, steep)[0].flatten().tolist() == pytest.approx([0.0, 1.0])


def test_nothing_valid_is_zero_with_a_gradient():
    logits = torch.randn(1, 3, 2, 2).double().requires_grad_()
    target = torch.full((1, *SIZE), IGNORE)
    losses = [
        tilted_mean(pixel_cross_entropy(logits, target), target, 1.0, 3),
        valid_mean(pixel_seesaw(logits, target, torch.zeros(3).double()), target),
        upsampled_cross_entropy(logits, target, focal=2.0),
        upsampled_binary_cross_entropy(logits, target, focal=2.0),
    ]
    assert [loss.item() for loss in losses] == [0.0] * 4
    (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), logits)
    assert torch.equal(gradient, torch.zeros_like(logits))


@pytest.mark.parametrize("grouped", [0, 3])
def test_gradients(grouped):
    logits, target = case()
    count = torch.tensor([5.0, 1.0, 3.0, 0.0]).double()
    assert loops.grad_ok(lambda z: upsampled_cross_entropy(z, target, focal=1.5, grouped=grouped), logits)
    assert loops.grad_ok(lambda z: upsampled_binary_cross_entropy(z, target, focal=1.5), logits)
    tilted = pixel_cross_entropy
    assert loops.grad_ok(lambda z: tilted_mean(tilted(z, target, grouped=grouped), target, 2.0, 4), logits)
    # Seesaw's σ carries no gradient, so only the part without it has finite differences.
    assert loops.grad_ok(lambda z: pixel_seesaw(z, target, count, 0.8, 0.0, grouped).sum(), logits)


def test_seesaw_gradient_treats_its_factors_as_constants():
    logits, target = case()
    logits = logits.requires_grad_()
    count = torch.tensor([5.0, 1.0, 3.0, 0.0]).double()
    found = torch.autograd.grad(pixel_seesaw(logits, target, count).sum(), logits)[0]
    up = torch.nn.functional.interpolate(logits, SIZE, mode="bilinear")
    p = up.detach().softmax(1)
    total = up.new_zeros(())
    for b, i, j in (target != IGNORE).nonzero().tolist():
        y = int(target[b, i, j])
        m = ((count - count[y]).clamp_max(0) * 0.8).exp()
        s = (p[b, :, i, j] / p[b, y, i, j]).clamp_min(1) ** 2
        factor = torch.where(torch.arange(4) == y, 1.0, m * s)
        total = total + (factor * up[b, :, i, j].exp()).sum().log() - up[b, y, i, j]
    expected = torch.autograd.grad(total, logits)[0]
    assert torch.allclose(found, expected, atol=1e-9)


def test_effective_numbers_by_hand():
    weight = effective_number_weights(torch.tensor([1, 2, 0]), 0.5)
    # (1 − β)/(1 − β^n) is 1, 2/3 and, counted as one image, 1.
    assert weight.tolist() == pytest.approx([9 / 8, 6 / 8, 9 / 8])
    assert torch.equal(effective_number_weights(torch.tensor([7, 100]), 0.0), torch.ones(2).double())
    many = effective_number_weights(torch.tensor([10, 10_000]), 0.9999)
    assert float(many[0] / many[1]) == pytest.approx((1 - 0.9999**10_000) / (1 - 0.9999**10))
