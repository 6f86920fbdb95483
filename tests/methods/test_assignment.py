"""Giving unlabelled pixels a label: nearest prototype, softmax, doubt, and the rejection of doubtful pixels."""

import math

import numpy as np
import pytest
import torch

from faircl.labels import IGNORE
from faircl.loading.assigned_labels import AssignedLabels
from faircl.methods.assignment import (
    Assignment,
    RejectingAssigner,
    assign_by_prototype,
    assign_by_softmax,
    prototype_distances,
)

READY = torch.ones(3, dtype=torch.bool)


def resize(plane, height, width):
    """Bilinear interpolation of a list of rows, sample centres half a pixel inside the border."""
    h, w = len(plane), len(plane[0])
    out = [[0.0] * width for _ in range(height)]
    for i in range(height):
        y = min(max((i + 0.5) * h / height - 0.5, 0.0), h - 1.0)
        for j in range(width):
            x = min(max((j + 0.5) * w / width - 0.5, 0.0), w - 1.0)
            for k in range(h):
                for m in range(w):
                    out[i][j] += max(0.0, 1 - abs(y - k)) * max(0.0, 1 - abs(x - m)) * plane[k][m]
    return out


def case(seed=0):
    gen = torch.Generator().manual_seed(seed)
    return torch.randn((2, 4, 3, 5), generator=gen).double(), torch.randn((3, 4), generator=gen).double()


def test_features_at_prototypes_get_their_labels():
    prototypes = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    labels = torch.tensor([[[0, 1], [2, 1]], [[2, 2], [0, 1]]])
    features = prototypes[labels].permute(0, 3, 1, 2)
    given = assign_by_prototype(features, prototypes, READY, labels.shape[-2:], doubt=True)
    assert torch.equal(given.labels, labels)
    assert given.doubt.max() < 1e-6


def test_distances_equal_the_loop():
    features, prototypes = case()
    distances = prototype_distances(features, prototypes)
    assert distances.shape == (2, 3, 3, 5)
    for b, k, i, j in np.ndindex(2, 3, 3, 5):
        by_hand = math.dist(features[b, :, i, j].tolist(), prototypes[k].tolist())
        assert distances[b, k, i, j].item() == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize("ready", [[1, 1, 1], [1, 0, 1], [0, 1, 0]])
def test_upsampled_distances_then_argmin_equal_the_loop(ready):
    features, prototypes = case()
    given = assign_by_prototype(features, prototypes, torch.tensor(ready).bool(), torch.Size((7, 11)), doubt=True)
    known = [k for k in range(3) if ready[k]]
    for b in range(2):
        planes = {}
        for k in known:
            plane = [
                [math.dist(features[b, :, i, j].tolist(), prototypes[k].tolist()) for j in range(5)] for i in range(3)
            ]
            planes[k] = resize(plane, 7, 11)
        for i, j in np.ndindex(7, 11):
            order = sorted(known, key=lambda k: planes[k][i][j])
            assert given.labels[b, i, j] == order[0]
            second = order[1] if len(order) > 1 else order[0]
            ratio = planes[order[0]][i][j] / planes[second][i][j]
            assert given.doubt[b, i, j].item() == pytest.approx(ratio, abs=1e-6)


def test_upsampling_features_instead_would_differ():
    """Half-way between features at 0 and 10 lies a prototype at 5, which no grid point is close to."""
    features = torch.tensor([[[[0.0, 10.0]]]])
    prototypes = torch.tensor([[0.0], [10.0], [5.0]])
    given = assign_by_prototype(features, prototypes, READY, torch.Size((1, 8)), doubt=True)
    assert given.labels[0, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_doubt_is_one_half_way_and_a_third_at_a_quarter():
    features = torch.tensor([5.0, 2.5, 0.0]).view(1, 1, 1, 3)
    given = assign_by_prototype(features, torch.tensor([[0.0], [10.0]]), READY[:2], torch.Size((1, 3)), doubt=True)
    assert given.doubt[0, 0].tolist() == pytest.approx([1, 1 / 3, 0], abs=1e-6)


def test_softmax_upsamples_logits_and_measures_entropy():
    logits = case(3)[0][:, :3]
    given = assign_by_softmax(logits, torch.Size((6, 7)), doubt=True)
    for b in range(2):
        planes = [resize(logits[b, k].tolist(), 6, 7) for k in range(3)]
        for i, j in np.ndindex(6, 7):
            e = [math.exp(plane[i][j]) for plane in planes]
            p = [v / sum(e) for v in e]
            assert given.labels[b, i, j] == p.index(max(p))
            entropy = -sum(v * math.log(v) for v in p) / math.log(3)
            assert given.doubt[b, i, j].item() == pytest.approx(entropy, abs=1e-6)


@pytest.mark.parametrize(("logits", "doubt"), [([0.0, 0.0, 0.0], 1.0), ([90.0, 0.0, 0.0], 0.0), ([3.0], 0.0)])
def test_softmax_doubt_lies_between_zero_and_one(logits, doubt):
    given = assign_by_softmax(torch.tensor(logits).view(1, -1, 1, 1), torch.Size((1, 1)), doubt=True)
    assert given.doubt.item() == pytest.approx(doubt, abs=1e-6)


def test_nothing_carries_a_gradient():
    features, prototypes = case()
    for given in (
        assign_by_prototype(features.requires_grad_(), prototypes, READY, torch.Size((3, 5)), doubt=True),
        assign_by_softmax(features, torch.Size((6, 10)), doubt=True),
    ):
        assert not given.doubt.requires_grad


# Rejection


def assigned(reject, doubt, labels, unlabelled=None, batch=2):
    """Masks after rejection, and the pixels kept per class."""
    assigner = RejectingAssigner(3, reject)
    unlabelled = torch.ones_like(labels, dtype=torch.bool) if unlabelled is None else unlabelled
    for k in range(0, len(labels), batch):
        part = slice(k, k + batch)
        ids = [str(i) for i in range(k, min(k + batch, len(labels)))]
        assigner.add(ids, Assignment(labels[part], doubt[part]), unlabelled[part])
    store = AssignedLabels()
    kept = assigner.store(store)
    return np.stack([store[str(i)] for i in range(len(labels))]), kept


def doubts(seed=0):
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (4, 20, 20), generator=gen)
    # Class 2 is much more doubtful than class 0: the quantile must be each class's own.
    return (torch.rand((4, 20, 20), generator=gen) + labels.float()) / 3, labels


def test_a_quarter_of_each_class_is_rejected_and_it_is_the_most_doubtful():
    doubt, labels = doubts()
    masks, kept = assigned(0.25, doubt, labels)
    for c in range(3):
        own = labels.numpy() == c
        taken = masks[own] == c
        assert set(np.unique(masks[own])) == {c, IGNORE}
        assert 0.72 < taken.mean() < 0.78
        assert kept[c] == taken.sum()
        assert doubt.numpy()[own][taken].max() <= doubt.numpy()[own][~taken].min() + 1 / 255


def test_no_rejection_keeps_everything():
    doubt, labels = doubts()
    masks, kept = assigned(0.0, doubt, labels)
    assert np.array_equal(masks, labels.numpy())
    assert kept.tolist() == np.bincount(labels.flatten().numpy()).tolist()


@pytest.mark.parametrize("reject", [0.0, 0.5])
def test_labelled_pixels_are_ignored_and_do_not_set_the_threshold(reject):
    doubt, labels = doubts()
    unlabelled = torch.zeros_like(labels, dtype=torch.bool)
    unlabelled[:, 10:] = True
    masks, kept = assigned(reject, doubt, labels, unlabelled)
    assert (masks[:, :10] == IGNORE).all()
    below, _ = assigned(reject, doubt[:, 10:], labels[:, 10:])
    assert np.array_equal(masks[:, 10:], below)
    assert kept.sum() == (masks != IGNORE).sum()


def test_rejection_does_not_depend_on_the_batches():
    doubt, labels = doubts()
    assert np.array_equal(assigned(0.3, doubt, labels, batch=1)[0], assigned(0.3, doubt, labels, batch=3)[0])


def test_equal_doubts_are_never_split():
    labels = torch.zeros((1, 4, 4), dtype=torch.int64)
    masks, kept = assigned(0.5, torch.full((1, 4, 4), 0.4), labels)
    assert (masks == 0).all()
    assert kept.tolist() == [16, 0, 0]
