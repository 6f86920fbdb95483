"""Pixels by true and predicted class, against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from faircl.auditing.pixel_counts import PixelCounter, joined_record
from faircl.errors import UserError
from faircl.fairness.record import RecordedClass

IGNORED = frozenset({255})


def classes(*ids):
    return [RecordedClass(id, f"c{id}") for id in ids]


def table(counter, counts):
    return joined_record(counter.classes, ["a"], [counts]).confusion()


def test_by_hand():
    counter = PixelCounter(classes(0, 1), IGNORED, "list")
    label = np.array([[0, 0, 1], [1, 255, 1]], np.uint8)
    prediction = np.array([[0, 1, 1], [7, 0, 255]], np.uint8)
    found = counter.count(label, prediction, "Label a")
    assert table(counter, found).tolist() == [[1, 1, 0], [0, 1, 2]]
    assert found.strays == {7: 1, 255: 1}


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
@pytest.mark.parametrize("ids", [range(5), (3, 1, 200, 17)])
@pytest.mark.parametrize("smooth", [1, 6])
def test_equals_scikit_learn(depth, ids, smooth):
    random = np.random.default_rng(0)
    label, prediction = (np.kron(random.choice(ids, (9, 11)), np.ones((smooth, smooth))) for _ in range(2))
    label = np.where(random.random(label.shape) < 0.1, 255, label).astype(depth)
    counter = PixelCounter(classes(*ids), IGNORED, "list")
    found = table(counter, counter.count(label, prediction.astype(depth), "Label a"))
    known = label != 255
    assert (found[:, :-1] == confusion_matrix(label[known], prediction[known], labels=list(ids))).all()
    assert not found[:, -1].any()


def test_many_classes():
    random = np.random.default_rng(1)
    label, prediction = random.integers(0, 900, (2, 40, 50)).astype(np.uint16)
    counter = PixelCounter(classes(*range(900)), frozenset(), "list")
    found = counter.count(label, prediction, "Label a")
    expected = confusion_matrix(label.ravel(), prediction.ravel(), labels=range(900))
    assert (table(counter, found)[:, :-1] == expected).all()


def test_parts_of_arrays_are_counted():
    label = np.arange(24, dtype=np.uint8).reshape(4, 6) % 3
    counter = PixelCounter(classes(0, 1, 2), IGNORED, "list")
    found = counter.count(label.T[::2], label.T[::2], "Label a")
    assert table(counter, found).diagonal().sum() == label.T[::2].size


def test_unknown_label_values_are_an_error():
    counter = PixelCounter(classes(0), IGNORED, "names.txt")
    label = np.array([[0, 9], [9, 12]], np.uint8)
    with pytest.raises(UserError, match=r"Label a holds the value 9 in 2 pixels \(and 1 more.*names.txt.*--ignore 9"):
        counter.count(label, label, "Label a")


def test_an_image_without_counted_pixels():
    counter = PixelCounter(classes(0), IGNORED, "list")
    found = counter.count(np.full((2, 2), 255, np.uint8), np.zeros((2, 2), np.uint8), "Label a")
    assert len(found.pixels) == 0
    assert found.strays == {}
