"""The audit as a whole: its classes and groups of classes, against scikit-learn, SciPy and the metrics of a step."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from records import named, random_record, record_of
from scipy import stats
from sklearn.metrics import jaccard_score, recall_score

from faircl.fairness import RecordedClass, audit_record
from faircl.metrics import summarise


def unequal(classes=8, images=10, pixels=600, background=True):
    generator = np.random.default_rng(2)
    shares = np.geomspace(1, 0.02, classes)
    truths = generator.choice(classes, (images, pixels), p=shares / shares.sum())
    right = generator.random(truths.shape) < np.linspace(0.9, 0.3, classes)[truths]
    guesses = np.where(right, truths, generator.integers(0, classes, truths.shape))
    found = (RecordedClass(0, "c0", background=background), *named(classes)[1:])
    return truths, guesses, record_of(list(zip(truths, guesses, strict=True)), found)


def test_classes_against_scikit_learn():
    truths, guesses, record = unequal()
    audit = audit_record(record, resamples=0)
    truth, guess = truths.ravel(), guesses.ravel()
    ious, recalls = 100 * jaccard_score(truth, guess, average=None), 100 * recall_score(truth, guess, average=None)
    assert [c.iou for c in audit.classes] == pytest.approx(ious)
    assert [c.accuracy for c in audit.classes] == pytest.approx(recalls)
    assert [c.error_rate for c in audit.classes] == pytest.approx(100 - recalls)
    assert [c.pixels for c in audit.classes] == np.bincount(truth).tolist()
    assert [c.share for c in audit.classes] == pytest.approx(100 * np.bincount(truth) / len(truth))
    assert [c.images for c in audit.classes] == [(truths == k).any(axis=1).sum() for k in range(8)]
    assert (audit.miou, audit.std) == pytest.approx((ious.mean(), ious.std()))
    assert (audit.gap, audit.error_gap) == pytest.approx((np.ptp(ious), np.ptp(recalls)))
    assert (audit.worst_k, audit.worst_k_mean) == (2, pytest.approx(np.sort(ious)[:2].mean()))
    assert audit.worst is not None
    assert audit.worst.id == ious.argmin()
    missed = np.bincount(truth[truth != guess], minlength=8)
    assert audit.summed_errors is not None
    assert audit.summed_errors.gap == pytest.approx(np.ptp(missed) / 10)
    assert audit.summed_errors.bound == pytest.approx(2 * 8 * missed.sum() / 10)


def test_same_numbers_as_the_metrics_of_a_step():
    _, _, record = unequal()
    audit = audit_record(record, resamples=0)
    counts = torch.tensor(record.confusion()[:, :-1]).long()
    names = [c.name for c in record.classes]
    metrics = summarise(counts, ids=range(8), names=names, learned_at=[0] * 8, step=0, background=True)
    assert (audit.miou, audit.std) == pytest.approx((metrics.groups["all"].miou, metrics.groups["all"].std))
    assert (audit.gap, audit.error_gap) == pytest.approx((metrics.gap, metrics.error_gap))
    assert audit.major_miou == pytest.approx(metrics.frequent_third)


def test_major_and_minor_classes():
    _, _, record = unequal()
    audit = audit_record(record, resamples=0)
    assert [c.group for c in audit.classes] == ["", "major", "major", *["minor"] * 5]
    ious, pixels = ([getattr(c, name) for c in audit.classes[1:]] for name in ("iou", "pixels"))
    assert audit.major_miou == pytest.approx(np.mean(ious[:2]))
    assert audit.minor_miou == pytest.approx(np.mean(ious[2:]))
    assert audit.rank_correlation == pytest.approx(stats.spearmanr(ious, pixels).statistic)


def test_two_classes_have_no_major_third():
    audit = audit_record(record_of([([0, 1, 1], [0, 1, 0])], named(2)), resamples=0)
    assert [c.group for c in audit.classes] == ["minor", "minor"]
    assert math.isnan(audit.major_miou)


def test_absent_and_unscored_classes_are_in_no_mean():
    classes = (RecordedClass(0, "background", background=True, scored=False), *named(3)[1:])
    pairs = [([0, 0, 1, 1], [1, 0, 1, 2])] * 5 + [([0, 0, 1, 1], [1, 0, 1, 1])]
    audit = audit_record(record_of(pairs, classes), resamples=50)
    # Class 1: 5 + 2 hits, 12 of the truth, 13 predicted.
    assert [c.iou for c in audit.classes] == pytest.approx([math.nan, 700 / 18, math.nan], nan_ok=True)
    assert [c.pixels for c in audit.classes] == [0, 12, 0]
    assert [c.interval is None for c in audit.classes] == [True, False, True]
    assert (audit.miou, audit.std) == pytest.approx((700 / 18, 0))


def test_nothing_at_all():
    audit = audit_record(record_of([], named(2)))
    assert audit.worst is None
    assert math.isnan(audit.miou)
    assert audit.to_json()["worst"] == {"name": None, "iou": None}


def test_json_has_no_nan_and_the_keys_of_the_contract():
    audit = audit_record(random_record(images=6), resamples=20, groups={"city": {"image1": "bern"}})
    text = json.dumps(audit.to_json(), allow_nan=False)
    found = json.loads(text)
    assert {"miou", "std", "gap", "error_gap", "worst", "classes"} <= set(found)
    assert {"id", "name", "iou", "accuracy", "pixels"} <= set(found["classes"][0])
    assert found["groups"][0]["groups"][0]["value"] == "bern"
    assert len(found["miou_interval"]) == 2


def test_no_torch_is_needed():
    code = "import sys, faircl.fairness, faircl.fairness.record_file; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
