"""The record of folders and arrays, against scikit-learn and torchmetrics."""

import hashlib

import numpy as np
import pytest
import torch
from mask_folders import random_masks, write_masks
from sklearn.metrics import confusion_matrix
from torchmetrics.classification import MulticlassJaccardIndex

from faircl.auditing.class_list import read_class_list
from faircl.auditing.mask_record import MaskSettings, count_arrays, count_files
from faircl.auditing.pairing import pair_files
from faircl.errors import UserError
from faircl.fairness.audit import audit_record
from faircl.progress import SilentReporter

NAMES = read_class_list([f"c{k}" for k in range(5)])


def count(labels, predictions, classes=NAMES, **settings):
    return count_files(pair_files(labels, predictions), classes, MaskSettings(**settings), SilentReporter())


@pytest.fixture(scope="module")
def masks():
    return random_masks(0, 20, 5)


@pytest.fixture(scope="module")
def folders(masks, tmp_path_factory):
    root = tmp_path_factory.mktemp("masks")
    return write_masks(root / "labels", masks[0]), write_masks(root / "predictions", masks[1])


def test_equals_other_libraries(masks, folders):
    record = count(*folders).record
    labels, predictions = (np.stack([part[id] for id in record.images]) for part in masks)
    known = labels != 255
    assert (record.confusion()[:, :-1] == confusion_matrix(labels[known], predictions[known], labels=range(5))).all()
    other = MulticlassJaccardIndex(5, average=None, ignore_index=255)
    expected = other(torch.from_numpy(predictions).long(), torch.from_numpy(labels).long())
    found = audit_record(record)
    assert [c.iou for c in found.classes] == pytest.approx((100 * expected).tolist(), rel=1e-5)
    assert found.std == pytest.approx(float(100 * expected.std(correction=0)), rel=1e-4)


def test_arrays_and_files_are_counted_alike(masks, folders):
    by_file = count(*folders)
    by_array = count_arrays(
        (masks[0][id] for id in by_file.record.images),
        (torch.from_numpy(masks[1][id]) for id in by_file.record.images),
        NAMES,
        MaskSettings(),
        by_file.record.images,
    )
    assert by_array.record.images == by_file.record.images
    for ours, theirs in zip(by_array.record.confusions, by_file.record.confusions, strict=True):
        assert (ours == theirs).all()


def test_depth_and_palette_change_nothing(masks, folders, tmp_path):
    deep = write_masks(tmp_path / "deep", masks[1], np.uint16)
    assert (count(folders[0], deep).record.confusion() == count(*folders).record.confusion()).all()


def test_the_digest_is_over_names_and_bytes(folders, tmp_path):
    found = count(*folders)
    expected = hashlib.sha256()
    for id in found.record.images:
        expected.update(f"{id}\0".encode())
        for folder in folders:
            expected.update(hashlib.sha256((folder / f"{id}.png").read_bytes()).digest())
    assert found.lineage == {"images": 20, "files": 40, "sha256": expected.hexdigest()}


def test_sizes_must_agree_or_are_made_so(tmp_path):
    label = np.kron([[0, 1], [2, 3]], np.ones((4, 4)))
    labels = write_masks(tmp_path / "labels", {"a": label})
    half = write_masks(tmp_path / "half", {"a": label[::2, ::4]})
    with pytest.raises(UserError, match=r"half/a.png has 2 x 4 pixels, but label .*labels/a.png has 8 x 8; .*--resize"):
        count(labels, half)
    assert count(labels, half, resize=True).record.confusion().diagonal().sum() == 64


def test_notes_on_values_without_a_class(tmp_path):
    labels = write_masks(tmp_path / "labels", {"a": [[0, 1, 255]], "b": [[1, 1, 1]]})
    predictions = write_masks(tmp_path / "predictions", {"a": [[0, 9, 9]], "b": [[255, 1, 40]]})
    found = count(labels, predictions)
    assert found.notes == (
        "3 labelled pixels in 2 predictions have a value that no audited class has (9, 40, 255): they count as "
        "'no class predicted'",
    )
    assert found.record.confusion()[:2].tolist() == [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 3]]


def test_ids_ignored_values_and_background(tmp_path):
    classes = read_class_list({0: "void", 7: "road", 255: "sky"})
    labels = write_masks(tmp_path / "labels", {"a": [[0, 7, 255]]})
    assert count(labels, labels, classes).record.confusion()[:, :3].diagonal().tolist() == [1, 1, 1]  # 255 is a class
    found = count(labels, labels, classes, ignore=("void",), background="road").record
    assert [(c.name, c.background) for c in found.classes] == [("road", True), ("sky", False)]
    assert found.confusion().tolist() == [[1, 0, 0], [0, 1, 0]]
    with pytest.raises(UserError, match="holds the value 0 in 1 pixels"):
        count(labels, labels, read_class_list({7: "road", 255: "sky"}))
    empty = write_masks(tmp_path / "empty", {"a": [[0, 0]]})
    with pytest.raises(UserError, match="all are ignored"):
        count(empty, empty, classes, ignore=(0,))


def test_arrays_of_different_number_or_name():
    mask = np.zeros((2, 2), int)
    for labels, predictions, words in (
        ([mask], [], "predictions end after 0"),
        ([mask], [mask, mask], "labels end after 1"),
        ([], [], "no mask to audit"),
    ):
        with pytest.raises(UserError, match=words):
            count_arrays(labels, predictions, NAMES, MaskSettings(), ())
    with pytest.raises(UserError, match="Two images are called 'a'"):
        count_arrays([mask] * 2, [mask] * 2, NAMES, MaskSettings(), ["a", "a"])
    assert count_arrays([mask] * 2, [mask] * 2, NAMES, MaskSettings(), ["a"]).record.images == ("a", "000001")
