"""PLOP's thresholds as the public code computes them, against plain loops."""

import math

import pytest
import torch
from tiny_steps import Run, World

from faircl.labels import IGNORE
from faircl.methods.assignment import Assignment, assign_by_softmax
from faircl.methods.entropy_labels import EntropyThresholds, PublishedEntropyThresholds, sure_labels

FLOOR = 0.001


def published_doubt(p, seen):
    """u' of one pixel with the probabilities p: a mean over classes, divided by log K and by log S."""
    mean = sum(-x * math.log(x) for x in p if x > 0) / len(p)
    return mean / math.log(len(p)) / math.log(seen)


def published_threshold(doubts, floor=FLOOR):
    """τ' of the doubts of one class, bin by bin."""
    if not doubts:
        return floor
    counts = [0] * 100
    for u in doubts:
        counts[min(int(u * 100), 99)] += 1
    half, numbers = len(doubts) / 2, 0
    for k, n in enumerate(counts):
        if n and numbers <= half <= numbers + n:
            return max((k + (half - numbers) / n) / 100, floor)
        numbers += k
    return math.inf if half > numbers else floor


def assignment_of(logits):
    return assign_by_softmax(logits, logits.shape[-2:], doubt=True)


def scanned(assignment, unlabelled, classes, seen):
    thresholds = PublishedEntropyThresholds(classes, seen)
    for k in range(len(assignment.labels)):
        one = slice(k, k + 1)
        thresholds.add(Assignment(assignment.labels[one], assignment.doubt[one]), unlabelled[one])
    return thresholds.gather(FLOOR)


@pytest.mark.parametrize(("classes", "seen", "sharpness"), [(3, 5, 1.0), (3, 4, 4.0), (6, 7, 0.3), (16, 17, 3.0)])
def test_thresholds_and_labels_by_loops(classes, seen, sharpness):
    gen = torch.Generator().manual_seed(classes)
    logits = sharpness * torch.randn((3, classes, 13, 11), generator=gen, dtype=torch.float64)
    unlabelled = torch.rand((3, 13, 11), generator=gen) > 0.3
    assignment = assignment_of(logits)
    found = scanned(assignment, unlabelled, classes, seen)
    chosen = sure_labels(assignment, found)

    pixels = logits.softmax(1).movedim(1, -1).reshape(-1, classes).tolist()
    doubts = [published_doubt(p, seen) for p in pixels]
    labels = [p.index(max(p)) for p in pixels]
    counted = unlabelled.flatten().tolist()
    for c in range(classes):
        mine = [u for u, y, n in zip(doubts, labels, counted, strict=True) if n and y == c]
        expected = published_threshold(mine)
        assert found[c].item() == pytest.approx(expected * classes * math.log(seen), rel=1e-5)
        for u, y, label in zip(doubts, labels, chosen.flatten().tolist(), strict=True):
            if y == c and abs(u - expected) > 1e-7:
                assert label == (c if u < expected else IGNORE)


def test_half_of_the_pixels_in_the_first_bin():
    """All 4 pixels in it: 0.005; 3 of 4: 2/3 of its width; the others' values do not matter."""
    thresholds = PublishedEntropyThresholds(2, 3)
    to_doubt = 2 * math.log(3)  # u / u'
    row = torch.tensor([[[0.001, 0.002, 0.003, 0.004, 0.001, 0.002, 0.003, 0.3]]]) * to_doubt
    labels = torch.tensor([[[0, 0, 0, 0, 1, 1, 1, 1]]])
    thresholds.add(Assignment(labels, row), torch.ones_like(labels, dtype=torch.bool))
    assert (thresholds.gather(FLOOR) / to_doubt).tolist() == pytest.approx([0.005, 0.01 * 2 / 3])
    assert (thresholds.gather(0.5) / to_doubt).tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(("pixels", "expected"), [(12_000, math.inf), (9_000, FLOOR), (0, FLOOR)])
def test_classes_whose_half_is_in_no_bin(pixels, expected):
    """A third of the pixels in each of three bins: no bin has half of them."""
    thresholds = PublishedEntropyThresholds(2, 3)
    thresholds.histogram[0, 3:6] = pixels // 3
    assert published_threshold([k / 100 + 0.005 for k in (3, 4, 5) for _ in range(pixels // 3)]) == expected
    assert thresholds.gather(FLOOR)[0].item() == pytest.approx(expected * 2 * math.log(3))


def test_nothing_is_rejected_with_as_many_classes_as_ade():
    gen = torch.Generator().manual_seed(0)
    assignment = assignment_of(2 * torch.randn((2, 101, 20, 20), generator=gen))
    everywhere = torch.ones((2, 20, 20), dtype=torch.bool)
    published = sure_labels(assignment, scanned(assignment, everywhere, 101, 151))
    assert torch.equal(published, assignment.labels)
    true_medians = EntropyThresholds(101)
    true_medians.add(assignment, everywhere)
    kept = (sure_labels(assignment, true_medians.gather(FLOOR)) != IGNORE).float().mean()
    assert 0.4 < kept < 0.75  # half of every class, rounded up


@pytest.mark.parametrize("name", ["plop", "reminder"])
def test_methods_use_them(name):
    runs = {doubt: Run(World(True), name=name, doubt=doubt).to_step_one(20) for doubt in ("normalised", "published")}
    method, world = runs["published"].method, runs["published"].world
    known, seen = world.channels
    with torch.no_grad():
        logits = runs["published"].teacher(world.image).logits
    assignment = assign_by_softmax(logits, torch.Size((24, 24)), doubt=True)
    expected = PublishedEntropyThresholds(known, seen)
    expected.add(assignment, world.labels(1) == world.unlabelled)
    assert torch.allclose(method.thresholds, expected.gather(FLOOR))
    assert not torch.allclose(method.thresholds, runs["normalised"].method.thresholds)
