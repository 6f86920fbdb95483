"""Counts of an evaluation by image, against plain loops and upsampled logits."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from records import named, record_of

from faircl.engine.image_counts import ImageCounter
from faircl.labels import IGNORE

CLASSES = 4


def batch(seed, images, size, stride):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(images, CLASSES, *(-(-side // stride) for side in size), generator=generator)
    full = F.interpolate(logits, size, mode="bilinear", align_corners=False)
    labels = torch.randint(CLASSES, (images, *size), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.1] = IGNORE
    return logits, full, labels


def counted(batches):
    counter, ids = ImageCounter(named(CLASSES)), []
    for k, (logits, full, labels) in enumerate(batches):
        own = [f"{k}-{n}" for n in range(len(labels))]
        counter.update(own, logits, full.argmax(1), labels)
        ids += own
    return counter.record(ids, 2, "validation", "full")


def by_loops(batches, every=1):
    """The record of all pixels, or of those that calibration looks at."""
    pairs, sure = [], []
    for _, full, labels in batches:
        probability, guess = full.softmax(1).max(1)
        for one in zip(labels, guess, probability, strict=True):
            truth, guessed, p = (np.array(part)[every // 2 :: every, every // 2 :: every] for part in one)
            pairs.append((np.where(truth == IGNORE, 255, truth), guessed))
            sure.append(p)
    return record_of(pairs, named(CLASSES), confidences=sure)


@pytest.mark.parametrize("stride", [1, 4])
def test_counts_equal_plain_loops(stride):
    batches = [batch(0, 3, (16, 24), stride), batch(1, 2, (9, 13), stride)]
    record, whole, sample = counted(batches), by_loops(batches), by_loops(batches, every=4)
    assert (record.step, record.kind, record.convention) == (2, "validation", "full")
    for own, other in zip(record.confusions, whole.confusions, strict=True):
        assert own.tolist() == other.tolist()
    for own, other in zip(record.reliability, sample.reliability, strict=True):
        assert own == pytest.approx(other, abs=1e-5)


def test_an_image_smaller_than_the_lattice_is_looked_at_once():
    record = counted([batch(0, 1, (2, 1), 1)])
    assert record.reliability.pixels.sum() <= 1
    assert record.confusions.pixels.sum() <= 2


def test_images_without_a_counted_pixel_stay_in_the_record():
    logits, full, labels = batch(0, 2, (8, 8), 4)
    labels[0] = IGNORE
    record = counted([(logits, full, labels)])
    assert record.images == ("0-0", "0-1")
    assert record.per_image().truth[0].tolist() == [0] * CLASSES


def test_a_label_that_is_no_class_is_an_error():
    logits, full, labels = batch(0, 1, (8, 8), 4)
    labels[0, 0, 0] = CLASSES
    with pytest.raises(ValueError, match=r"outside \[0, 4\)"):
        counted([(logits, full, labels)])
