"""Intervals: the errors behind them against plain loops, the rules around them, and how often they cover."""

import math

import numpy as np
import pytest
from populations import POPULATION, drawn_counts, population_measures
from records import named, random_record, record_of

from faircl.fairness import audit_record, paired_difference, resampling
from faircl.fairness.intervals import FEWEST, Interval, intervals
from faircl.fairness.record import ImageCounts
from faircl.fairness.resampling import Resampled, resampled


def measures(sides, chosen, known):
    """IoUs, mean and standard deviation of listed images, in plain loops; the difference for two sides."""
    found = []
    for hits, truth, predicted in sides:
        ious = []
        for c in range(hits.shape[1]):
            h, t, p = (sum(int(column[i, c]) for i in chosen) for column in (hits, truth, predicted))
            ious.append(100 * h / (t + p - h) if t else math.nan)
        kept = [x for x, k in zip(ious, known, strict=True) if k and not math.isnan(x)]
        found.append(np.array([*ious, np.mean(kept), np.std(kept)]))
    return found[1] - found[0] if len(found) == 2 else found[0]


def small_counts(seed, images=7):
    return [random_record(seed=seed + k, images=images, classes=3, side=6).per_image() for k in range(2)]


@pytest.mark.parametrize("two", [False, True])
def test_measures_and_errors_of_all_images_against_plain_loops(two):
    sides = small_counts(3)[: 1 + two]
    known = np.array([True, True, True])
    found = resampled(sides, known, 0, 0)
    everything = list(range(7))
    assert found.measures == pytest.approx(measures(sides, everything, known))
    left = np.array([measures(sides, [i for i in everything if i != k], known) for k in everything])
    assert found.errors == pytest.approx(np.sqrt(6 / 7 * ((left - left.mean(axis=0)) ** 2).sum(axis=0)))


@pytest.mark.parametrize("two", [False, True])
def test_drawn_sets_against_plain_loops(two, monkeypatch):
    monkeypatch.setattr(resampling, "_CELLS", 30)  # several chunks
    sides = small_counts(5)[: 1 + two]
    known = np.array([True, False, True])
    found = resampled(sides, known, 9, seed=4)
    generator = np.random.default_rng(4)
    sets = np.concatenate([generator.integers(0, 7, (size, 7)) for size in (4, 4, 1)])
    for row, errors, chosen in zip(found.drawn, found.drawn_errors, sets.tolist(), strict=True):
        assert row == pytest.approx(measures(sides, chosen, known))
        # The influence of an image, numerically: how the measure changes if the image weighs a little more.
        weights = np.bincount(chosen, minlength=7)
        slopes = []
        for k in range(7):
            ends = []
            for step in (-1, 1):
                factor = 10_000 * weights
                factor[k] += step
                scaled = [ImageCounts(*(column * factor[:, None] for column in side)) for side in sides]
                ends.append(measures(scaled, range(7), known))
            slopes.append((ends[1] - ends[0]) / 2 * 10_000)
        assert errors == pytest.approx(np.sqrt((weights[:, None] * np.array(slopes) ** 2).sum(axis=0)), rel=1e-3)


def test_ends_by_hand():
    # |m* − m| / e* of 19 sets are 1 to 19: the quantile of 90 % is the 18th smallest, ⌈0.9 · 20⌉.
    drawn = 50.0 + np.arange(1, 20)[:, None] * np.array([1, -1])
    found = Resampled(np.array([50.0, 50.0]), np.array([2.0, 3.0]), drawn, np.ones_like(drawn))
    assert intervals(found, [FEWEST, FEWEST], confidence=0.9) == [Interval(14, 86), Interval(0, 100)]
    assert intervals(found, [FEWEST - 1, FEWEST], confidence=0.9)[0] is None


def test_a_class_in_few_images_has_no_interval():
    blank = np.zeros(20, np.int64)
    shown = np.repeat([0, 1], [15, 5])
    for images, given in ((FEWEST - 1, False), (FEWEST, True)):
        pairs = [(shown, np.roll(shown, k)) for k in range(images)] + [(blank, blank)] * 10
        audit = audit_record(record_of(pairs, named(2)), resamples=200)
        assert (audit.classes[1].interval is not None) == given
        assert audit.classes[1].images == images
        assert audit.miou_interval is not None


def test_few_images_have_no_interval_at_all():
    audit = audit_record(random_record(images=FEWEST - 1))
    assert audit.miou_interval is None
    assert audit.std_interval is None
    assert all(c.interval is None for c in audit.classes)


@pytest.mark.parametrize("found", [True, False])
def test_a_class_that_is_alike_in_all_images_has_no_interval(found):
    truth = np.repeat([0, 1], [10, 10])
    record = record_of([(truth, truth if found else 1 - truth)] * 8, named(2))
    audit = audit_record(record, resamples=100)
    assert [(c.iou, c.interval) for c in audit.classes] == [(100 * found, None)] * 2
    assert (audit.miou_interval, audit.std_interval) == (None, None)
    same = paired_difference(record, record, resamples=100)  # no image changes anything: that is known
    assert same.miou.interval == (0, 0)


def test_intervals_hold_their_measures_and_stay_in_range():
    audit = audit_record(random_record(images=9, side=6, right=0.95))
    for value, one in [(c.iou, c.interval) for c in audit.classes] + [(audit.miou, audit.miou_interval)]:
        assert one is not None
        assert 0 <= one.low <= value <= one.high <= 100


def test_the_seed_decides():
    record = random_record(images=9)
    assert audit_record(record, seed=3).to_json() == audit_record(record, seed=3).to_json()
    assert audit_record(record, seed=3).miou_interval != audit_record(record, seed=4).miou_interval


def test_no_resamples_no_intervals():
    audit = audit_record(random_record(), resamples=0)
    assert audit.miou_interval is None
    assert audit.miou == pytest.approx(audit_record(random_record(), resamples=20).miou)


def test_a_higher_confidence_is_wider():
    record = random_record(images=20)
    low, high = (audit_record(record, confidence=c).miou_interval for c in (0.8, 0.99))
    assert low is not None
    assert high is not None
    assert high.low < low.low < low.high < high.high


def covered(images, sets, resamples):
    """Share of simulated sets whose intervals hold the truth, in percent: measures of one model, of a difference."""
    truth = POPULATION
    known = np.ones(len(truth[0]) - 2, dtype=bool)
    shares = []
    for several, true, lowest in (((0,), truth[0], 0), ((0, 1), truth[1] - truth[0], -100)):
        hits = np.zeros(len(true))
        for seed in range(sets):
            counts = drawn_counts(np.random.default_rng(seed), images)
            found = resampled([counts[k] for k in several], known, resamples, seed)
            ends = intervals(found, np.full(len(true), images), lowest=lowest)
            hits += [one is not None and one.low <= value <= one.high for one, value in zip(ends, true, strict=True)]
        shares.append(100 * hits / sets)
    return shares


@pytest.mark.slow
def test_the_population_is_as_noted():
    assert population_measures() == pytest.approx(POPULATION, abs=0.006)


def test_coverage_of_a_few_sets():
    alone, difference = covered(images=100, sets=100, resamples=199)
    assert (alone >= 88).all()  # four standard errors below 95 %: 0.95 − 3.2 · √(0.95 · 0.05 / 100)
    assert (difference >= 88).all()


@pytest.mark.slow
@pytest.mark.parametrize("images", [100, 200])
def test_coverage_of_a_thousand_sets(images):
    for shares in covered(images=images, sets=1000, resamples=999):
        assert shares.min() >= 93, shares
        assert shares.max() <= 97, shares
