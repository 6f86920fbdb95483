"""The Pareto front against a double loop."""

import math

import numpy as np

from faircl.fairness import pareto_front


def test_against_a_double_loop():
    points = np.random.default_rng(0).integers(0, 8, (40, 2)).tolist()
    expected = [
        not any((a, -b) != (m, -s) and a >= m and b <= s for a, b in points)  # someone is better in one, worse in none
        for m, s in points
    ]
    assert pareto_front([tuple(point) for point in points]) == expected


def test_a_small_spread_at_a_low_mean_is_on_the_front_only_if_nobody_beats_both():
    assert pareto_front([(70, 12), (20, 15)]) == [True, False]
    assert pareto_front([(70, 12), (20, 2)]) == [True, True]


def test_equal_points_share_the_front_and_unknown_ones_are_off_it():
    assert pareto_front([(50, 5), (50, 5), (math.nan, 1), (60, math.nan)]) == [True, True, False, False]
    assert pareto_front([]) == []
