"""Rare-class sampling, and batches made of several streams."""

import math

import numpy as np
import pytest

from faircl.loading.samplers import RareClassOrder, ShuffledOrder, StepBatchSampler, Stream

PIXELS = np.array([[90, 0, 0], [80, 10, 0], [0, 0, 5], [70, 0, 0], [0, 0, 0]])


def rare(temperature=0.3, seed=0, step=0):
    return RareClassOrder(PIXELS, temperature, seed, step)


def test_chances_follow_the_formula():
    share = [240 / 255, 10 / 255, 5 / 255]
    weight = [math.exp((1 - f) / 0.3) for f in share]
    assert rare().chance.tolist() == pytest.approx([w / sum(weight) for w in weight])


def test_draws_follow_the_chances_and_show_the_class():
    drawn = np.concatenate([rare().epoch(k) for k in range(4000)])
    assert len(drawn) == 4000 * len(PIXELS)
    shares = np.bincount(drawn, minlength=5) / len(drawn)
    chance = rare().chance
    # Images 0, 1 and 3 share the first class, image 1 alone shows the second, image 2 alone the third.
    expected = [chance[0] / 3, chance[0] / 3 + chance[1], chance[2], chance[0] / 3, 0.0]
    assert shares.tolist() == pytest.approx(expected, abs=0.015)


def test_a_hot_draw_is_even_over_classes_and_a_cold_one_takes_the_rarest():
    assert rare(1e6).chance.tolist() == pytest.approx([1 / 3] * 3, abs=1e-5)
    assert set(rare(1e-4).epoch(0).tolist()) == {2}


def test_repeatable_and_counted():
    assert rare().epoch(3).tolist() == rare().epoch(3).tolist()
    others = (rare().epoch(4), rare(seed=1).epoch(3), rare(step=1).epoch(3))
    assert all(rare().epoch(3).tolist() != other.tolist() for other in others)


def test_absent_classes_are_no_trouble():
    order = RareClassOrder(np.array([[4, 0], [6, 0]]), 0.01, 0, 0)
    assert order.chance.tolist() == [1.0]
    assert set(order.epoch(0).tolist()) <= {0, 1}


def test_batches_of_two_streams():
    streams = [Stream(ShuffledOrder(6, 0, ("shuffle", 1)), 3), Stream(ShuffledOrder(2, 0, ("memory", 1)), 1, first=6)]
    batches = list(StepBatchSampler(streams, 8))
    flat = [pair for batch in batches for pair in batch]
    assert [draw for draw, _ in flat] == list(range(32))
    assert all([index >= 6 for _, index in batch] == [False, False, False, True] for batch in batches)
    new = [index for _, index in flat if index < 6]
    assert all(sorted(new[k : k + 6]) == list(range(6)) for k in range(0, 24, 6))
    kept = [index for _, index in flat if index >= 6]
    assert all(sorted(kept[k : k + 2]) == [6, 7] for k in range(0, 8, 2))
