"""Averaging with the network before a step: which weights, by which share, and at which steps."""

import pytest
import torch
from tiny_steps import Run, World

from faircl.labels import IGNORE
from faircl.methods.base import ScannedBatch
from faircl.methods.faircl import weight_average
from faircl.methods.faircl.weight_average import new_class_iou
from faircl.models.segmenter import SegOutput


def weights(network):
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def after_both_steps(**options):
    """The network before the second step, at its last update and when it has ended."""
    r = Run(World(), **options).begin(0)
    r.iterate(4)
    r.end()
    before = weights(r.model)
    r.begin(1, lr=0.05)
    r.iterate(4)
    trained = weights(r.model)
    r.end()
    return before, trained, weights(r.model)


def judged(monkeypatch, *scores):
    """Let the new classes have these mean IoUs: without averaging, with the share, with half of it."""
    given = iter(scores)
    monkeypatch.setattr(weight_average, "new_class_iou", lambda context: next(given))


@pytest.mark.parametrize(
    ("scores", "share"),
    [
        ((0.4, 0.4), 0.5),
        ((0.4, 0.39, 0.41), 0.25),
        ((0.4, 0.39, 0.39), 0.0),
        ((float("nan"), float("nan"), float("nan")), 0.0),
    ],
)
def test_the_largest_share_that_new_classes_do_not_pay_for(scores, share, monkeypatch):
    judged(monkeypatch, *scores)
    before, trained, ended = after_both_steps(average=0.5)
    moved = 0
    for name, value in ended.items():
        feature = name.startswith(("backbone.", "decoder.")) and value.is_floating_point()
        expected = share * before[name] + (1 - share) * trained[name] if feature and share > 0 else trained[name]
        torch.testing.assert_close(value, expected)
        moved += feature and not torch.equal(before[name], trained[name])
    assert moved > 4
    heads = [name for name in ended if name.startswith("classifier.")]
    assert any(name in before and not torch.equal(before[name], ended[name]) for name in heads)


def test_without_averaging_nothing_is_judged(monkeypatch):
    judged(monkeypatch)
    _, trained, ended = after_both_steps()
    assert all(torch.equal(value, trained[name]) for name, value in ended.items())


def test_the_first_step_is_left_alone_and_shared(monkeypatch):
    judged(monkeypatch)
    r = Run(World(), average=0.5).begin(0)
    r.iterate(2)
    trained = weights(r.model)
    r.end()
    assert all(torch.equal(value, trained[name]) for name, value in weights(r.model).items())
    assert r.method.step0_key() == Run(World()).begin(0).method.step0_key()


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_lies_in_its_range(share):
    with pytest.raises(ValueError, match="average"):
        Run(World(), average=share)


# ---- the IoU that decides


def scanned(labels, predicted, classes):
    """Batches as a scan yields them, with the network's choice for every pixel."""
    for k, (label, choice) in enumerate(zip(labels, predicted, strict=True)):
        logits = torch.nn.functional.one_hot(choice, classes).permute(0, 3, 1, 2).float()
        yield ScannedBatch([str(k)], label, SegOutput(logits, logits, ()), [k])


@pytest.mark.parametrize("background", [True, False])
def test_the_iou_of_new_classes_counts_unlabelled_pixels_as_old(background):
    world = World(background)
    context = world.context(1, Run(world).begin(0).model)
    old, classes = context.old_classes, context.classes
    labels = world.labels(1)[:4, ::4, ::4]
    generator = torch.Generator().manual_seed(5)
    predicted = torch.randint(classes, labels.shape, generator=generator)
    context.scan = lambda windows, most: scanned(labels.split(2), predicted.split(2), classes)
    expected = []
    for c in range(old, classes):
        hit = wrong = missed = 0
        for label, choice in zip(labels.flatten().tolist(), predicted.flatten().tolist(), strict=True):
            if label != IGNORE:
                hit += label == choice == c
                wrong += choice == c != label
                missed += label == c != choice
        expected.append(hit / (hit + wrong + missed))
    assert new_class_iou(context) == pytest.approx(sum(expected) / len(expected))


def test_new_classes_that_no_window_shows_have_no_iou():
    world = World()
    context = world.context(1, Run(world).begin(0).model)
    labels = torch.zeros_like(world.labels(1))
    context.scan = lambda windows, most: scanned([labels], [labels], context.classes)
    assert torch.tensor(new_class_iou(context)).isnan()
