"""Differences between two evaluations, paired by image."""

import math

import numpy as np
import pytest
from records import named, random_record, record_of

from faircl.errors import UserError
from faircl.fairness import RecordedClass, audit_record, paired_difference


def test_values_are_those_of_the_audits():
    before, after = random_record(seed=1, right=0.6), random_record(seed=1, right=0.8)
    found = paired_difference(before, after, resamples=50)
    was, now = audit_record(before, resamples=0), audit_record(after, resamples=0)
    assert found.images == 12
    assert (found.miou.before, found.miou.after) == pytest.approx((was.miou, now.miou))
    assert found.std.difference == pytest.approx(now.std - was.std)
    for one, a, b in zip(found.classes, was.classes, now.classes, strict=True):
        assert (one.id, one.name) == (b.id, b.name)
        assert (one.before, one.after, one.difference) == pytest.approx((a.iou, b.iou, b.iou - a.iou))
    assert found.miou.interval is not None
    assert found.miou.interval.low <= found.miou.difference <= found.miou.interval.high
    assert found.miou.significant


def test_the_order_of_the_images_does_not_matter_and_only_shared_ones_count():
    before, after = random_record(seed=1), random_record(seed=2)
    shared = paired_difference(before.select([9, 2, 5, 7, 1, 3]), after.select([1, 2, 3, 4, 5, 7, 9, 11]), resamples=50)
    alone = paired_difference(before.select([1, 2, 3, 5, 7, 9]), after.select([1, 2, 3, 5, 7, 9]), resamples=50)
    assert shared == alone
    assert shared.images == 6


def test_pairing_is_narrower_than_two_intervals():
    generator = np.random.default_rng(0)
    pairs, better = [], []
    for hard in generator.uniform(0.1, 0.9, 30):  # images differ much, the models little
        truth = generator.integers(0, 3, 400)
        wrong = generator.random(400)
        guess = generator.integers(0, 3, 400)
        pairs.append((truth, np.where(wrong < hard, guess, truth)))
        better.append((truth, np.where(wrong < hard - 0.02, guess, truth)))
    found = paired_difference(record_of(pairs, named(3)), record_of(better, named(3)))
    alone = audit_record(record_of(pairs, named(3))).miou_interval
    assert found.miou.interval is not None
    assert alone is not None
    assert found.miou.interval.high - found.miou.interval.low < 0.2 * (alone.high - alone.low)
    assert found.miou.significant


def test_an_evaluation_does_not_differ_from_itself():
    found = paired_difference(random_record(), random_record(), resamples=50)
    assert (found.miou.difference, found.std.difference) == (0, 0)
    assert found.miou.interval == (0, 0)
    assert not found.miou.significant


def test_classes_are_matched_by_id_and_means_taken_over_the_shared_ones():
    truth, guess = np.repeat([0, 1], 10), np.tile([0, 1], 10)
    before = record_of([(truth, guess)] * 6, (RecordedClass(7, "cat"), RecordedClass(9, "dog")))
    after = record_of(
        [(np.r_[2 - truth, [0] * 4], np.r_[2 - truth, [0] * 4])] * 6,
        (RecordedClass(1, "eel", learned_at=1), RecordedClass(9, "dog"), RecordedClass(7, "cat")),
    )
    found = paired_difference(before, after, resamples=20)
    assert [(one.id, one.name, one.after) for one in found.classes] == [(9, "dog", 100), (7, "cat", 100)]
    assert found.miou.after == 100
    assert found.miou.before == pytest.approx(100 / 3)


def test_a_class_without_truth_has_no_difference():
    found = paired_difference(record_of([([0], [0])] * 6, named(2)), record_of([([0], [1])] * 6, named(2)), resamples=9)
    assert math.isnan(found.classes[1].difference)
    assert found.classes[1].interval is None
    assert not found.classes[1].significant
    assert found.to_json()["classes"][1]["difference"] is None


def test_nothing_shared_is_a_plain_error():
    record = random_record(images=3)
    with pytest.raises(UserError, match="share no image"):
        paired_difference(record, record_of([([0], [0])], named(5), images=["elsewhere"]))
    with pytest.raises(UserError, match="share no class"):
        paired_difference(record, record_of([([0], [0])], (RecordedClass(99, "other"),), images=["image0"]))
