"""IoU image by image: a case by hand, and plain loops over images and classes."""

import math

import numpy as np
import pytest
from records import named, random_record, record_of
from sklearn.metrics import jaccard_score

from faircl.fairness import RecordedClass, audit_record
from faircl.fairness.image_ious import image_ious, image_means, worst_count


def plain_means(ious, q):
    """The four means of an (N, C) table with None for absent, as the paper's sums are written."""
    rows = [[v for v in row if v is not None] for row in ious]
    by_image = sorted(sum(row) / len(row) for row in rows if row)
    columns = [sorted(v for v in column if v is not None) for column in zip(*ious, strict=True)]
    columns = [column for column in columns if column]

    def first(values):
        kept = values[: max(1, int(q / 100 * len(values)))]
        return sum(kept) / len(kept)

    return (
        sum(by_image) / len(by_image),
        sum(sum(c) / len(c) for c in columns) / len(columns),
        first(by_image),
        sum(first(c) for c in columns) / len(columns),
    )


def test_by_hand():
    # Image 0: class 0 has 1 of 2 right and 1 wrongly predicted as 1; image 1 shows class 1 alone, and predicts 0 too.
    record = record_of([([0, 0, 1], [0, 1, 1]), ([1, 1], [1, 0])], named(2))
    ious = image_ious(record.per_image(), np.array([True, True]))
    assert ious[0].tolist() == [50, 50]
    assert math.isnan(ious[1, 0])  # predicted but not in the truth
    assert ious[1, 1] == 50
    audit = audit_record(record, resamples=0)
    assert (audit.image_miou, audit.class_miou) == (50, 50)
    assert [c.image_iou for c in audit.classes] == [50, 50]


@pytest.mark.parametrize("q", [5, 20, 50, 100])
def test_against_plain_loops(q):
    generator = np.random.default_rng(q)
    table = generator.uniform(0, 100, (40, 6))
    table[generator.random(table.shape) < 0.5] = np.nan
    table[3] = np.nan
    found = image_means(table, q)
    plain = plain_means([[None if math.isnan(v) else v for v in row] for row in table.tolist()], q)
    assert (found.image_miou, found.class_miou, found.worst_image_miou, found.worst_class_miou) == pytest.approx(plain)
    assert found.classes == pytest.approx(np.nanmean(table, axis=0))


def test_against_scikit_learn():
    generator = np.random.default_rng(1)
    pairs = [(generator.integers(0, 3, 50), generator.integers(0, 3, 50)) for _ in range(4)]
    found = image_ious(record_of(pairs, named(3)).per_image(), np.ones(3, dtype=bool))
    for row, (truth, guess) in zip(found, pairs, strict=True):
        assert row == pytest.approx(100 * jaccard_score(truth, guess, average=None))


def test_all_of_the_images_are_the_worst_hundred_percent():
    audit = audit_record(random_record(), resamples=0, worst_share=100)
    assert audit.worst_image_miou == pytest.approx(audit.image_miou)
    assert audit.worst_class_miou == pytest.approx(audit.class_miou)


def test_worst_images_are_rounded_down_but_at_least_one():
    assert [worst_count(n, 5) for n in (1, 19, 20, 39, 40, 1000)] == [1, 1, 1, 1, 2, 50]


def test_a_class_that_is_not_scored_is_left_out():
    classes = (RecordedClass(0, "background", background=True, scored=False), RecordedClass(1, "cat"))
    audit = audit_record(record_of([([0, 0, 1, 1], [1, 0, 1, 0])], classes), resamples=0)
    assert audit.image_miou == pytest.approx(100 / 3)
    assert math.isnan(audit.classes[0].image_iou)
