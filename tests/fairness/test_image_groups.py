"""Groups of images by metadata, against fairlearn."""

import math

import numpy as np
import pytest
from fairlearn.metrics import MetricFrame
from records import named, random_record, record_of
from sklearn.metrics import jaccard_score

from faircl.errors import UserError
from faircl.fairness import audit_record, image_groups
from faircl.fairness.metadata import UNKNOWN


def masks(images=12, classes=4, pixels=60):
    generator = np.random.default_rng(0)
    truths = generator.integers(0, classes, (images, pixels))
    right = generator.random(truths.shape) < np.linspace(0.2, 0.9, images)[:, None]
    return truths, np.where(right, truths, generator.integers(0, classes, truths.shape))


def test_against_fairlearn():
    truths, guesses = masks()
    record = record_of(list(zip(truths, guesses, strict=True)), named(4))
    cities = ["bern", "ulm", "wien"]
    values = {id: cities[k % 3] for k, id in enumerate(record.images)}
    (found,) = image_groups(record, {"city": values}, resamples=0)

    def miou(truth, guess):
        return 100 * jaccard_score(truth, guess, average="macro")

    def std(truth, guess):
        return 100 * float(np.std(jaccard_score(truth, guess, average=None)))

    frame = MetricFrame(
        metrics={"miou": miou, "std": std},
        y_true=truths.ravel(),
        y_pred=guesses.ravel(),
        sensitive_features=np.repeat([values[id] for id in record.images], truths.shape[1]),
    )
    assert [group.value for group in found.groups] == list(frame.by_group.index)
    assert [group.miou for group in found.groups] == pytest.approx(frame.by_group["miou"].tolist())
    assert [group.std for group in found.groups] == pytest.approx(frame.by_group["std"].tolist())
    assert found.group_min == pytest.approx(frame.group_min()["miou"])
    assert found.group_max == pytest.approx(frame.group_max()["miou"])
    assert found.difference == pytest.approx(frame.difference()["miou"])
    assert found.ratio == pytest.approx(frame.ratio()["miou"])


def test_a_group_is_the_audit_of_its_images_with_its_interval():
    record = random_record(images=14)
    values = {f"image{k}": "night" if k < 6 else "day" for k in range(14)}
    (found,) = audit_record(record, resamples=99, groups={"light": values}).groups
    day, night = found.groups
    assert (day.value, night.value, day.images, night.images) == ("day", "night", 8, 6)
    alone = audit_record(record.select(range(6)), resamples=99)
    assert (night.miou, night.std, night.miou_interval) == (alone.miou, alone.std, alone.miou_interval)
    assert alone.worst is not None
    assert (night.worst, night.worst_iou) == (alone.worst.name, alone.worst.iou)


def test_images_without_a_value_are_shown_and_few_images_have_no_interval():
    record = random_record(images=10)
    (found,) = image_groups(record, {"city": {"image3": "bern", "image4": "", "elsewhere": "rom"}}, resamples=20)
    assert [(group.value, group.images) for group in found.groups] == [("bern", 1), (UNKNOWN, 9)]
    assert found.groups[0].miou_interval is None
    assert found.groups[1].miou_interval is not None


def test_several_attributes():
    record = random_record(images=4)
    values = dict.fromkeys(record.images, "x")
    found = image_groups(record, {"city": values, "camera": values}, resamples=0)
    assert [one.name for one in found] == ["city", "camera"]
    assert (found[0].difference, found[0].ratio) == (0, 1)


def test_a_ratio_of_nothing_is_not_known():
    record = record_of([([0], [1])] * 2, named(2))
    (found,) = image_groups(record, {"city": {"image0": "a", "image1": "b"}}, resamples=0)
    assert found.group_max == 0
    assert math.isnan(found.ratio)


def test_metadata_of_other_images_is_a_plain_error():
    with pytest.raises(UserError, match=r"'city'.*'a.png'.*'image0'"):
        image_groups(random_record(images=2), {"city": {"a.png": "bern"}})
