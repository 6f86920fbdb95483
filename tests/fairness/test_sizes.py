"""Strata by object size against a plain loop."""

import math

import numpy as np
import pytest
from records import named, record_of

from faircl.fairness import RecordedClass, audit_record
from faircl.fairness.sizes import LIMITS, SIZES


def test_limits_are_those_of_coco():
    assert pytest.approx((32**2 / (640 * 480), 96**2 / (640 * 480))) == LIMITS


def test_against_a_plain_loop():
    generator = np.random.default_rng(0)
    classes = (RecordedClass(0, "background", background=True), *named(4)[1:])
    shares = np.array([0.95, 0.04, 0.009, 0.001])
    pairs = []
    for _ in range(6):
        truth = generator.choice(4, 2000, p=shares)
        pairs.append((truth, np.where(generator.random(2000) < 0.7, truth, generator.integers(0, 4, 2000))))
    expected = {name: [0, 0, 0, 0] for name in SIZES}
    for truth, guess in pairs:
        for c in (1, 2, 3):
            n = int((truth == c).sum())
            if n:
                name = "small" if n / 2000 < 1 / 300 else "medium" if n / 2000 < 0.03 else "large"
                hits = int(((truth == c) & (guess == c)).sum())
                union = int(((truth == c) | (guess == c)).sum())
                expected[name] = [a + b for a, b in zip(expected[name], (1, n, hits, union), strict=True)]
    found = audit_record(record_of(pairs, classes), resamples=0).sizes
    assert tuple(one.name for one in found) == SIZES
    for one in found:
        objects, pixels, hits, union = expected[one.name]
        assert (one.objects, one.pixels) == (objects, pixels)
        assert one.accuracy == pytest.approx(100 * hits / pixels)
        assert one.iou == pytest.approx(100 * hits / union)


def test_a_region_at_the_limit_belongs_to_the_larger_stratum_and_an_empty_stratum_is_not_known():
    truth = np.repeat([0, 1], [291, 9])  # 9 of 300: 3 %
    classes = (RecordedClass(0, "background", background=True), RecordedClass(1, "cat"))
    small, medium, large = audit_record(record_of([(truth, truth)], classes), resamples=0).sizes
    assert (small.objects, medium.objects, large.objects) == (0, 0, 1)
    assert math.isnan(small.iou)
    assert large.iou == 100
