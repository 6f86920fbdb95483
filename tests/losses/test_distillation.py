"""Distillation of logits and features, against plain loops in float64."""

import math

import pytest
import torch

from faircl.labels import IGNORE
from faircl.losses.binary import upsampled_binary_cross_entropy
from faircl.losses.distillation import (
    binary_distillation,
    distillation,
    feature_distance,
    unbiased_distillation,
)
from faircl.models.classifier import GrowingClassifier


def draw(batch, classes, size, seed=0):
    gen = torch.Generator().manual_seed(seed)
    return 3 * torch.randn((batch, classes, *size), generator=gen, dtype=torch.float64)


def softmax(values):
    top = max(values)
    powers = [math.exp(v - top) for v in values]
    return [p / sum(powers) for p in powers]


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def loop(kind, new, old, valid):
    """One pixel and one class at a time."""
    batch, known, high, wide = old.shape
    total = count = 0
    for b in range(batch):
        for y in range(high):
            for x in range(wide):
                if not valid[b, y, x]:
                    continue
                count += 1
                z, q = new[b, :, y, x].tolist(), softmax(old[b, :, y, x].tolist())
                if kind == "plain":
                    p = softmax(z[:known])
                    total += -sum(q[c] * math.log(p[c]) for c in range(known)) / known
                elif kind == "unbiased":
                    p = softmax(z)
                    p = [p[0] + sum(p[known:]), *p[1:known]]
                    total += -sum(q[c] * math.log(p[c]) for c in range(known)) / known
                else:
                    wanted = [sigmoid(v) for v in old[b, :, y, x].tolist()]
                    own = [sigmoid(v) for v in z[:known]]
                    terms = [w * math.log(o) + (1 - w) * math.log(1 - o) for w, o in zip(wanted, own, strict=True)]
                    total += -sum(terms) / known
    return total / max(count, 1)


KINDS = {"plain": distillation, "unbiased": unbiased_distillation, "binary": binary_distillation}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("known", "classes"), [(1, 2), (3, 4), (2, 5), (3, 3)])
@pytest.mark.parametrize("void", ["none", "some", "all"])
def test_equals_a_plain_loop(kind, known, classes, void):
    new, old = draw(2, classes, (3, 2)), draw(2, known, (3, 2), seed=1)
    valid = {"none": torch.ones(2, 3, 2), "all": torch.zeros(2, 3, 2), "some": torch.arange(12).view(2, 3, 2) % 3}[void]
    valid = valid > 0
    found = KINDS[kind](new, old, valid)
    assert found.item() == pytest.approx(loop(kind, new, old, valid), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    new, old = draw(1, 4, (2, 2)).requires_grad_(), draw(1, 2, (2, 2), seed=1)
    valid = torch.tensor([[[True, False], [True, True]]])
    assert torch.autograd.gradcheck(lambda z: KINDS[kind](z, old, valid), new)
    KINDS[kind](new, old, valid).backward()
    assert not new.grad[0, :, 0, 1].any()  # void
    if kind != "unbiased":
        assert not new.grad[:, 2:].any()  # no gradient for new classes


def test_equal_networks_lose_nothing_but_their_entropy():
    old = draw(1, 3, (2, 2))
    valid = torch.ones(1, 2, 2, dtype=torch.bool)
    entropy = -(old.softmax(1) * old.log_softmax(1)).sum(1).mean() / 3
    assert distillation(old, old, valid).item() == pytest.approx(entropy.item(), abs=1e-12)
    # And so does a new network whose new classes share the background's probability.
    shared = torch.cat([old[:, :1] - math.log(3), old[:, 1:], *([old[:, :1] - math.log(3)] * 2)], dim=1)
    assert unbiased_distillation(shared, old, valid).item() == pytest.approx(entropy.item(), abs=1e-12)


@pytest.mark.parametrize("new_classes", [1, 3])
def test_mibs_start_shares_the_backgrounds_probability(new_classes):
    """At the first iteration p(background) of the old model is p(background) + Σ p(new) of the new one."""
    torch.manual_seed(0)
    classifier = GrowingClassifier(5).double()
    classifier.grow(4).double()
    torch.nn.init.normal_(classifier.heads[0].weight)
    embedding = torch.randn(2, 5, 3, 3, dtype=torch.float64)
    before = classifier(embedding).softmax(1)
    classifier.grow(new_classes).double()
    classifier.init_from_background()
    after = classifier(embedding).softmax(1)
    torch.testing.assert_close(before[:, 0], after[:, 0] + after[:, 4:].sum(1), rtol=0, atol=1e-12)
    torch.testing.assert_close(before[:, 1:], after[:, 1:4], rtol=0, atol=1e-12)


def test_feature_distance():
    a, b = draw(2, 3, (2, 2)), draw(2, 3, (2, 2), seed=1)
    plain = sum((x - y) ** 2 for x, y in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)) / 24
    assert feature_distance(a, b).item() == pytest.approx(plain, abs=1e-9)
    assert feature_distance(a, a).item() == 0


@pytest.mark.parametrize("size", [(2, 3), (4, 6)])
def test_binary_cross_entropy_equals_a_plain_loop(size):
    logits = draw(2, 3, (2, 3))
    target = torch.randint(3, (2, *size), generator=torch.Generator().manual_seed(3))
    target[0, 0] = IGNORE
    up = logits
    if size != (2, 3):
        up = torch.nn.functional.interpolate(logits, size, mode="bilinear", align_corners=False)
    total = count = 0
    for b in range(2):
        for y in range(size[0]):
            for x in range(size[1]):
                if target[b, y, x] != IGNORE:
                    count += 1
                    for c in range(3):
                        p = sigmoid(up[b, c, y, x].item())
                        total += -math.log(p if target[b, y, x] == c else 1 - p)
    assert upsampled_binary_cross_entropy(logits, target).item() == pytest.approx(total / count, abs=1e-6)
    z = logits.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: upsampled_binary_cross_entropy(z, target), z)
    assert upsampled_binary_cross_entropy(logits, torch.full((2, 4, 6), IGNORE)).item() == 0
