"""The confusion matrix against hand counts, a double loop, torchmetrics, and its own algebra."""

import doctest
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.classification import MulticlassConfusionMatrix, MulticlassJaccardIndex

import faircl.metrics.confusion
from faircl.labels import IGNORE, UNLABELLED
from faircl.metrics import ConfusionMatrix, error_rate, iou, pixels


def double_loop(prediction, target, num_classes):
    counts = [[0] * num_classes for _ in range(num_classes)]
    for p, t in zip(prediction.flatten().tolist(), target.flatten().tolist(), strict=True):
        if t != IGNORE:
            counts[t][p] += 1
    return counts


def random_pair(shape, num_classes, seed=0, ignored=0.2):
    gen = torch.Generator().manual_seed(seed)
    prediction = torch.randint(num_classes, shape, generator=gen)
    target = torch.randint(num_classes, shape, generator=gen)
    target[torch.rand(shape, generator=gen) < ignored] = IGNORE
    return prediction, target


def counted(prediction, target, num_classes):
    matrix = ConfusionMatrix(num_classes)
    matrix.update(prediction, target)
    return matrix.counts


def test_doctest():
    assert doctest.testmod(faircl.metrics.confusion).failed == 0


def test_two_classes_by_hand():
    # truth 0: three right, one called 1; truth 1: one right, two called 0.
    target = torch.tensor([[0, 0, 0, 0], [1, 1, 1, IGNORE]])
    prediction = torch.tensor([[0, 0, 0, 1], [1, 0, 0, 1]])
    counts = counted(prediction, target, 2)
    assert counts.dtype == torch.int64
    assert counts.tolist() == [[3, 1], [2, 1]]
    assert pixels(counts).tolist() == [4, 3]
    assert iou(counts).tolist() == [3 / 6, 1 / 4]
    assert error_rate(counts).tolist() == pytest.approx([1 / 4, 2 / 3])


def test_absent_class_is_nan_even_when_predicted():
    counts = counted(torch.tensor([0, 2, 0]), torch.tensor([0, 0, 0]), 3)
    assert iou(counts)[0] == pytest.approx(2 / 3)
    assert iou(counts)[1:].isnan().all()
    assert error_rate(counts)[1:].isnan().all()
    assert iou(counts).dtype == error_rate(counts).dtype == torch.float64


def test_present_but_never_found_is_zero():
    counts = counted(torch.tensor([0, 0]), torch.tensor([0, 1]), 2)
    assert iou(counts)[1] == 0
    assert error_rate(counts)[1] == 1


@pytest.mark.parametrize("shape", [(50,), (2, 7, 5), (1, 1), (0,)])
def test_equals_double_loop(shape):
    prediction, target = random_pair(shape, 5)
    assert counted(prediction, target, 5).tolist() == double_loop(prediction, target, 5)


@pytest.mark.parametrize("num_classes", [2, 5, 21, 151])
def test_equals_torchmetrics(num_classes):
    prediction, target = random_pair((2, 40, 40), num_classes, seed=num_classes)
    counts = counted(prediction, target, num_classes)
    theirs = MulticlassConfusionMatrix(num_classes, ignore_index=IGNORE)(prediction, target)
    assert torch.equal(counts, theirs)
    # torchmetrics gives 0 to absent classes; here all are present.
    assert (pixels(counts) > 0).all()
    jaccard = MulticlassJaccardIndex(num_classes, average=None, ignore_index=IGNORE)(prediction, target)
    torch.testing.assert_close(iou(counts).float(), jaccard)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32])
def test_any_integer_type(dtype):
    target = torch.from_numpy(np.array([0, 1, 200], dtype=dtype))
    assert counted(target, target, 201).diagonal().nonzero().flatten().tolist() == [0, 1, 200]


def test_ignore_in_16_bit_masks():
    target = torch.from_numpy(np.array([0, IGNORE], dtype=np.uint16))
    assert counted(torch.tensor([0, 0]), target, 1).tolist() == [[1]]


def test_prediction_on_ignored_pixels_is_not_looked_at():
    assert counted(torch.tensor([0, 99]), torch.tensor([0, IGNORE]), 1).tolist() == [[1]]


@pytest.mark.parametrize(
    ("prediction", "target", "message"),
    [
        ([0, 0], [0, 7], r"target has the value 7, expected a class in \[0, 3\)"),
        ([0, 0], [0, UNLABELLED], "target has the value 65534"),
        ([0, 0], [-1, 0], "target has the value -1"),
        ([0, 3], [0, 0], "prediction has the value 3"),
        ([0, 0, 0], [0, 0], "differ in shape"),
        ([0.0, 1.0], [0, 1], "argmax"),
        ([True, False], [0, 1], "argmax"),
    ],
)
def test_bad_input_is_named_and_nothing_counted(prediction, target, message):
    matrix = ConfusionMatrix(3)
    with pytest.raises(ValueError, match=message):
        matrix.update(torch.tensor(prediction), torch.tensor(target))
    assert matrix.counts.sum() == 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, 3, IGNORE])), max_size=30), st.data())
def test_any_split_of_the_pixels_merges_to_the_whole(pairs, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(pairs)), min_size=2, max_size=2)))
    tensor = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    whole = counted(tensor[:, 0], tensor[:, 1], 4)
    parts = (tensor[: cuts[0]], tensor[cuts[0] : cuts[1]], tensor[cuts[1] :])
    merged = ConfusionMatrix(4)
    for k in data.draw(st.permutations(range(3))):
        merged.update(parts[k][:, 0], parts[k][:, 1])
    assert torch.equal(merged.counts, whole)
    rates = iou(whole)
    present = pixels(whole) > 0
    assert ((rates[present] >= 0) & (rates[present] <= 1 - error_rate(whole)[present] + 1e-12)).all()
    assert all(math.isnan(r) for r in rates[~present].tolist())


def test_no_class_is_refused():
    with pytest.raises(ValueError, match="at least one class"):
        ConfusionMatrix(0)
