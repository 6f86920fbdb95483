"""Measures of spread against plain loops, SciPy and cases worked out by hand."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from faircl.fairness.spread import (
    gap,
    gini,
    jain,
    rank_correlation,
    spread,
    summed_errors,
    variation,
    worst_mean,
)

CASES = [[50.0], [10.0, 10.0, 40.0], [0.0, 0.0, 90.0, 30.0], *np.random.default_rng(0).uniform(0, 100, (4, 9)).tolist()]


@pytest.mark.parametrize("values", CASES)
def test_against_plain_loops(values):
    size, mean = len(values), sum(values) / len(values)
    pairs = [abs(a - b) for a, b in product(values, values)]
    assert spread(values) == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / size))
    assert gap(values) == pytest.approx(max(pairs))
    assert gini(values) == pytest.approx(sum(pairs) / (2 * size**2 * mean))
    assert jain(values) == pytest.approx(sum(values) ** 2 / (size * sum(v * v for v in values)))
    assert variation(values) == pytest.approx(stats.variation(values))
    assert worst_mean(values, 2) == pytest.approx(np.mean(sorted(values)[:2]))
    errors = summed_errors(values, images=4)
    assert errors.gap == pytest.approx(max(pairs) / 4)
    assert errors.pairs == pytest.approx(sum(pairs) / 4)
    assert errors.bound == pytest.approx(2 * size * sum(values) / 4)


def test_ends_of_the_ranges():
    assert (gini([7, 7, 7]), jain([7, 7, 7]), variation([7, 7, 7])) == (0, 1, 0)
    assert gini([0, 0, 0, 12]) == pytest.approx(3 / 4)
    assert jain([0, 0, 0, 12]) == pytest.approx(1 / 4)
    assert variation([0, 0, 0, 12]) == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize("measure", [gini, jain, variation])
@pytest.mark.parametrize("values", [[], [0.0, 0.0]])
def test_shares_of_nothing_are_not_known(measure, values):
    assert math.isnan(measure(values))


def test_no_class_at_all():
    assert all(math.isnan(value) for value in (spread([]), gap([]), worst_mean([], 3), rank_correlation([], [])))


@pytest.mark.parametrize("seed", range(5))
def test_rank_correlation_against_scipy_with_ties(seed):
    generator = np.random.default_rng(seed)
    values, pixels = generator.integers(0, 5, 12), generator.integers(0, 8, 12)
    assert rank_correlation(values, pixels) == pytest.approx(stats.spearmanr(values, pixels).statistic)


def test_rank_correlation_of_equal_values_is_not_known():
    assert math.isnan(rank_correlation([3, 3, 3], [1, 2, 3]))
    assert math.isnan(rank_correlation([3], [1]))


def test_bound_of_summed_errors_holds():
    generator = np.random.default_rng(3)
    for size in range(1, 20):
        errors = summed_errors(generator.exponential(1000, size), images=7)
        assert errors.gap <= errors.pairs + 1e-9
        assert errors.pairs <= errors.bound + 1e-9


def test_the_same_chain_with_error_rates_on_the_left_does_not_hold():
    """The example of docs/fairness.md: a large class without an error beside a small one that is missed altogether."""
    pixels, missed = np.array([999_999, 1]), np.array([0, 1])
    rates = missed / pixels
    overall = missed.sum() / pixels.sum()  # the loss that training minimises, as an error rate over all pixels
    assert gap(rates) == 1
    assert 2 * len(rates) * overall == pytest.approx(4e-6)
