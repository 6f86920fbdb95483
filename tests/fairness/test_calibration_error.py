"""Calibration error against torchmetrics and a plain loop."""

import math

import numpy as np
import pytest
import torch
from records import named, random_record, record_of
from torchmetrics.functional.classification import binary_calibration_error

from faircl.fairness import audit_record
from faircl.fairness.record import BINS


def test_against_torchmetrics_overall_and_per_predicted_class():
    generator = np.random.default_rng(0)
    truths, guesses = generator.integers(0, 3, (2, 5, 40))
    sure = generator.uniform(1 / 3, 1, truths.shape)
    record = record_of(list(zip(truths, guesses, strict=True)), named(3), confidences=sure)
    audit = audit_record(record, resamples=0)

    def library(chosen):
        # Confidence of "the prediction is right", and whether it is: the binary form of the same bins.
        confidence, right = torch.tensor(sure[chosen]), torch.tensor(truths[chosen] == guesses[chosen])
        return 100 * float(binary_calibration_error(confidence, right.long(), n_bins=BINS, norm="l1"))

    assert audit.calibration_error == pytest.approx(library(np.ones_like(truths, dtype=bool)), abs=1e-4)
    for c in audit.classes:
        assert c.calibration_error == pytest.approx(library(guesses == c.id), abs=1e-4)


def test_by_hand():
    # Four pixels predicted as class 0 with confidence 0.9, three of them right; class 1 is always right and sure.
    pairs = [([0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1])]
    record = record_of(pairs, named(2), confidences=[np.array([0.9, 0.9, 0.9, 0.9, 1.0, 1.0])])
    audit = audit_record(record, resamples=0)
    assert [c.calibration_error for c in audit.classes] == pytest.approx([15, 0])
    # 0.9 and 1.0 lie in bins 13 and 14, so nothing cancels out.
    assert audit.calibration_error == pytest.approx(15 * 4 / 6)


def test_not_known_without_confidences():
    audit = audit_record(record_of([([0, 1], [0, 0])], named(2)), resamples=0)
    assert math.isnan(audit.calibration_error)
    assert all(math.isnan(c.calibration_error) for c in audit.classes)
    assert audit.to_json()["calibration_error"] is None


def test_errors_lie_between_zero_and_hundred():
    audit = audit_record(random_record(), resamples=0)
    assert all(0 <= c.calibration_error <= 100 for c in audit.classes)
