"""Evaluation records made from masks, or at random."""

import numpy as np

from faircl.fairness.record import BINS, Confusions, EvaluationRecord, RecordedClass, Reliability


def named(count, **values):
    """Classes "c0", "c1" …"""
    return tuple(RecordedClass(k, f"c{k}", **values) for k in range(count))


def record_of(pairs, classes, images=None, confidences=None, **values):
    """Return the record of (truth, prediction) masks, counted pixel by pixel; classes by position, 255 is ignored.

    ``confidences`` holds an array like the masks for every pair.
    """
    size = len(classes)
    entries, bins = {}, {}
    for k, (truth, prediction) in enumerate(pairs):
        sure = np.full(np.shape(truth), np.nan) if confidences is None else confidences[k]
        for t, p, s in zip(
            np.ravel(truth).tolist(), np.ravel(prediction).tolist(), np.ravel(sure).tolist(), strict=True
        ):
            if t == 255:
                continue
            p = size if p == 255 else p
            entries[k, t, p] = entries.get((k, t, p), 0) + 1
            if confidences is not None:
                key = (k, p, min(int(s * BINS), BINS - 1))
                pixels, correct, total = bins.get(key, (0, 0, 0.0))
                bins[key] = (pixels + 1, correct + (t == p), total + s)
    columns = [
        np.array(column, np.int64) for column in zip(*((*key, n) for key, n in sorted(entries.items())), strict=True)
    ]
    found = Confusions(*(columns or [np.zeros(0, np.int64)] * 4))
    rows = [(*key, *value) for key, value in sorted(bins.items())]
    reliability = {}
    if rows:
        *counts, confidence = zip(*rows, strict=True)
        reliability = {"reliability": Reliability(*(np.array(c, np.int64) for c in counts), np.array(confidence))}
    images = tuple(images or (f"image{k}" for k in range(len(pairs))))
    return EvaluationRecord(tuple(classes), images, found, **reliability, **values)


def random_record(seed=0, images=12, classes=5, side=16, right=0.7, **values):
    """Return a record of random masks of which a share is predicted rightly, with confidences."""
    generator = np.random.default_rng(seed)
    truths = generator.integers(0, classes, (images, side, side))
    guesses = generator.integers(0, classes, truths.shape)
    predictions = np.where(generator.random(truths.shape) < right, truths, guesses)
    sure = generator.uniform(1 / classes, 1, truths.shape)
    return record_of(list(zip(truths, predictions, strict=True)), named(classes), confidences=sure, **values)
