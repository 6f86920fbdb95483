"""Algorithm 1 on the prototype bank, line by line."""

from collections import deque
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from faircl.labels import IGNORE
from faircl.prototypes import PrototypeBank, sample_keys


def bank(classes=3, width=2, length=4, period=3, momentum=0.5, background=True):
    made = PrototypeBank(width, length, period, momentum)
    made.begin_step(classes, background)
    return made


def push(to, features, labels, keys=None, quota=100):
    features = torch.tensor(features, dtype=torch.float32)
    labels = torch.tensor(labels)
    keys = torch.arange(len(labels)) if keys is None else torch.tensor(keys)
    to.push(features, labels, keys << 17, quota)  # a real key's lowest bits do not choose


def contents(of, c):
    """Queue of a class, oldest entry first."""
    filled, head = int(of.filled[c]), int(of.head[c])
    draws = range(filled) if filled < of.length else [(head + k) % of.length for k in range(filled)]
    return [of.queue[c, place].tolist() for place in draws]


def test_nothing_before_m_then_the_mean():
    b = bank()
    push(b, [[1, 2], [3, 6], [7, 7]], [0, 0, 1])
    for iteration in (1, 2):
        b.update(iteration)
        assert not b.ready.any()
        assert b.prototypes.eq(0).all()
    push(b, [[5, 1]], [0])
    b.update(3)
    assert b.prototypes.tolist() == [[3, 3], [7, 7], [0, 0]]
    assert b.ready.tolist() == [True, True, False]


def test_momentum_exactly_every_m():
    b = bank(momentum=0.75)
    push(b, [[4, 0]], [1])
    for iteration in range(1, 4):
        b.update(iteration)
    expected = 4.0
    for iteration in range(4, 13):
        push(b, [[float(iteration), 0]], [1])
        b.update(iteration)
        if iteration % 3 == 0:
            queue = [4.0, *range(4, iteration + 1)][-4:]
            expected = 0.75 * expected + 0.25 * sum(queue) / 4
        assert b.prototypes[1].tolist() == pytest.approx([expected, 0]), iteration


def test_a_class_unseen_stays_not_ready_and_one_seen_late_starts_at_its_mean():
    b = bank()
    push(b, [[2, 2]], [0])
    for iteration in range(1, 5):
        b.update(iteration)
    push(b, [[8, 4], [4, 8]], [1, 1])
    b.update(5)
    assert b.ready.tolist() == [True, False, False]
    b.update(6)
    assert b.ready.tolist() == [True, True, False]
    assert b.prototypes.tolist() == [[2, 2], [6, 6], [0, 0]]


def test_queue_is_bounded_and_keeps_the_newest():
    b = bank(length=4)
    for k in range(11):
        push(b, [[k, -k]], [1])
        assert int(b.filled[1]) == min(k + 1, 4)
    assert contents(b, 1) == [[k, -k] for k in (7, 8, 9, 10)]
    assert b.filled.tolist() == [0, 4, 0]
    assert b.queue.shape == (3, 4, 2)


def test_only_filled_draws_are_averaged():
    b = bank(length=50, period=1)
    push(b, [[3, 1], [5, 1]], [2, 2])
    b.update(1)
    assert b.prototypes[2].tolist() == [4, 1]


@pytest.mark.parametrize("quota", [1, 2, 3, 9])
def test_quota_takes_the_smallest_keys_of_every_class(quota):
    b = bank(length=5)
    keys = [9, 1, 8, 2, 7, 3, 6, 4]
    labels = [0, 0, 0, 0, 1, 1, IGNORE, 1]
    push(b, [[k, 0] for k in keys], labels, keys, quota)
    for c in (0, 1):
        own = sorted(k for k, label in zip(keys, labels, strict=True) if label == c)
        assert contents(b, c) == [[k, 0] for k in own[: min(quota, 5)]]
    assert contents(b, 2) == []


def test_a_quota_beyond_the_queue_fills_it_once():
    b = bank(length=4)
    push(b, [[k, 0] for k in range(10)], [1] * 10, quota=7)
    assert contents(b, 1) == [[k, 0] for k in range(4)]


batches = st.lists(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, IGNORE]), st.integers(-(2**40), 2**40)), max_size=12), max_size=8
)


@given(batches, st.integers(1, 6), st.integers(1, 8))
@settings(max_examples=80, deadline=None)
def test_ring_buffer_is_a_deque(pushes, length, quota):
    b = bank(width=1, length=length)
    queues = [deque(maxlen=length) for _ in range(3)]
    number = 0
    for items in pushes:
        distinct = list({key: label for label, key in items}.items())
        values = [number + k for k in range(len(distinct))]
        number += len(distinct)
        for c, queue in enumerate(queues):
            own = sorted((key, v) for (key, label), v in zip(distinct, values, strict=True) if label == c)
            queue.extend([float(v)] for _, v in own[: min(quota, length)])
        if distinct:
            push(b, [[v] for v in values], [label for _, label in distinct], [key for key, _ in distinct], quota)
        else:
            b.push(torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), quota)
        assert [contents(b, c) for c in range(3)] == [list(queue) for queue in queues]


def test_features_are_copied_without_gradient():
    b = bank(period=1)
    features = torch.tensor([[1.0, 2.0]], requires_grad=True)
    b.push(features * 1.0, torch.tensor([1]), torch.tensor([0]), 5)
    b.update(1)
    assert not b.queue.requires_grad
    assert not b.prototypes.requires_grad
    assert b.prototypes[1].tolist() == [1, 2]


@pytest.mark.parametrize("background", [True, False])
def test_old_prototypes_are_bitwise_frozen(background):
    b = bank(classes=3, period=2, background=background)
    gen = torch.Generator().manual_seed(0)
    b.push(torch.randn((30, 2), generator=gen), torch.arange(30) % 3, torch.arange(30), 100)
    b.update(2)
    b.finish_step()
    before = b.prototypes.clone()
    b.begin_step(5, background)
    assert torch.equal(b.prototypes[:3], before)
    assert b.ready.tolist() == [True, True, True, False, False]
    for iteration in range(1, 9):
        b.push(torch.randn((30, 2), generator=gen) + 5, torch.arange(30) % 5, torch.arange(30), 100)
        b.update(iteration)
    b.finish_step()
    first = int(background)
    assert torch.equal(b.prototypes[first:3], before[first:])
    assert b.filled[first:3].eq(0).all()
    assert b.ready.all()
    if background:
        assert (b.prototypes[0] - before[0]).norm() > 1
    assert (b.prototypes[3:] - 5).abs().max() < 3


def test_p0_takes_the_mean_at_m_of_a_later_step_and_then_moves_by_momentum():
    b = bank(classes=2, period=2, momentum=0.9)
    push(b, [[10, 0], [4, 4]], [0, 1])
    b.update(2)
    b.begin_step(3, True)
    assert contents(b, 0) == []  # features of the step before do not mix with the new ones
    push(b, [[0, 10]], [0])
    b.update(1)
    assert b.prototypes[0].tolist() == [10, 0]  # until M it stays where the step before left it
    b.update(2)
    assert b.prototypes[0].tolist() == [0, 10]
    push(b, [[0, 20]], [0])
    b.update(3)
    b.update(4)
    assert b.prototypes[0].tolist() == pytest.approx([0, 0.9 * 10 + 0.1 * 15])
    assert b.prototypes[1].tolist() == [4, 4]


def test_p0_without_features_by_m_keeps_its_value_and_moves_later_by_momentum():
    b = bank(classes=2, period=2, momentum=0.5)
    push(b, [[10, 0]], [0])
    b.update(2)
    b.begin_step(3, True)
    b.update(2)
    assert b.prototypes[0].tolist() == [10, 0]
    push(b, [[0, 10]], [0])
    b.update(4)
    assert b.prototypes[0].tolist() == [5, 5]


def test_three_steps_freeze_one_after_the_other():
    b = bank(classes=2)
    frozen = []
    for classes in (4, 5):
        b.begin_step(classes, True)
        frozen.append(b.frozen.tolist())
    assert frozen == [[False, True, False, False], [False, True, True, True, False]]


def test_finish_step_gives_short_steps_a_mean_and_moves_nothing_else():
    b = bank(period=100)
    push(b, [[1, 1], [3, 5]], [1, 1])
    b.update(7)
    b.finish_step()
    assert b.ready.tolist() == [False, True, False]
    assert b.prototypes[1].tolist() == [2, 3]
    b.begin_step(4, True)
    push(b, [[9, 9], [4, 6]], [1, 3])
    b.finish_step()
    assert b.prototypes[1].tolist() == [2, 3]
    assert b.prototypes[3].tolist() == [4, 6]


def test_a_finished_step_carries_no_queues():
    b = bank()
    push(b, [[1, 1]], [1])
    b.finish_step()
    assert (b.queue.numel(), b.filled.sum(), b.head.sum()) == (0, 0, 0)


# The choice of features


def chosen(order, draws):
    """Queues of a bank that got a batch of draws in this order, keyed by sample_keys."""
    gen = torch.Generator().manual_seed(4)
    features = torch.randn((len(draws), 36, 2), generator=gen)[order]
    labels = torch.randint(3, (len(draws), 36), generator=gen)[order]
    keys = sample_keys(torch.tensor(draws)[order], 6, 6)
    b = bank(length=20)
    b.push(features.flatten(0, 1), labels.flatten(), keys, 7)
    return b.queue


def test_choice_does_not_depend_on_the_order_of_the_batch():
    assert torch.equal(chosen([0, 1, 2, 3], [5, 8, 2, 30]), chosen([2, 0, 3, 1], [5, 8, 2, 30]))


def test_keys_are_repeatable_and_distinct():
    draws = torch.tensor([0, 1, 2, 977, 20_000, 3_000_000])
    keys = sample_keys(draws, 24, 32)
    assert torch.equal(keys, sample_keys(draws, 24, 32))
    assert keys.dtype == torch.int64
    assert len(keys.unique()) == keys.numel() == 6 * 24 * 32
    # A draw keeps its keys whatever else is in the batch.
    assert torch.equal(sample_keys(draws[3:4], 24, 32), keys.view(6, -1)[3])
    # Two crops of one image are two draws, here in one batch of 64 and over many.
    assert len(sample_keys(torch.arange(512), 24, 32).unique()) == 512 * 24 * 32


def test_smallest_keys_are_spread_over_places_pixels_and_batches():
    picks = torch.zeros(4, 16, 16)
    sets = []
    for batch in range(64):
        smallest = sample_keys(4 * batch + torch.arange(4), 16, 16).argsort()[:128]
        sets.append(set(smallest.tolist()))
        picks.view(-1)[smallest] += 1
    # 64·128 = 8192 draws: five standard deviations around the even share.
    for axes, expected in (((1, 2), 2048), ((0, 2), 512), ((0, 1), 512)):
        assert (picks.sum(axes) - expected).abs().max() < 5 * expected**0.5
    assert picks.max() <= 24  # 8 expected
    overlap = [len(a & b) for a, b in pairwise(sets)]
    assert max(overlap) < 40  # 16 expected
