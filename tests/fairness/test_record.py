"""The record of an evaluation against masks counted by hand and by plain loops."""

import numpy as np
import pytest
from records import named, random_record, record_of

from faircl.errors import UserError
from faircl.fairness.record import join_records
from faircl.fairness.record_file import load_record, save_record

TRUTH = np.array([[0, 0, 1], [1, 255, 2]])
GUESS = np.array([[0, 1, 1], [255, 0, 2]])


@pytest.fixture
def by_hand():
    return record_of([(TRUTH, GUESS), (TRUTH, TRUTH)], named(3))


def test_confusion_has_a_last_column_for_pixels_without_a_prediction(by_hand):
    assert by_hand.confusion().tolist() == [[3, 1, 0, 0], [0, 3, 0, 1], [0, 0, 2, 0]]
    assert by_hand.confusion([0, 1]).tolist() == [[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0]]


def test_per_image_counts(by_hand):
    hits, truth, predicted = by_hand.per_image()
    assert hits.tolist() == [[1, 1, 1], [2, 2, 1]]
    assert truth.tolist() == [[2, 2, 1], [2, 2, 1]]
    assert predicted.tolist() == [[1, 2, 1], [2, 2, 1]]


def test_per_image_counts_add_up_to_the_confusion():
    record = random_record(images=7)
    hits, truth, predicted = (column.sum(axis=0) for column in record.per_image())
    confusion = record.confusion()
    assert (hits == np.diagonal(confusion)).all()
    assert (truth == confusion.sum(axis=1)).all()
    assert (predicted == confusion.sum(axis=0)[:-1]).all()


def test_selected_images_are_those_of_a_record_made_of_them_alone():
    record = random_record(images=5)
    for order in ([3], [4, 0, 2], list(range(5))):
        some = record.select(order)
        weights = np.isin(np.arange(5), order)
        assert some.images == tuple(record.images[k] for k in order)
        assert (some.confusion() == record.confusion(weights)).all()
        assert (some.per_image().truth == record.per_image().truth[order]).all()
        assert (np.diff(some.confusions.image) >= 0).all()
        assert (np.diff(some.reliability.image) >= 0).all()
        assert some.reliability.pixels.sum() == some.confusions.pixels.sum()


def test_parts_join_to_the_whole_in_any_order():
    record = random_record(images=6)
    joined = join_records([record.select([5, 1]), record.select([0, 2, 4]), record.select([3])], record.images)
    assert joined.images == record.images
    for part, whole in zip(
        (*joined.confusions, *joined.reliability), (*record.confusions, *record.reliability), strict=True
    ):
        assert part.tolist() == whole.tolist()


def test_file_gives_back_the_record_and_equal_records_equal_bytes(tmp_path):
    record = random_record(images=4, step=3, kind="validation", convention="plop")
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for path in paths:
        save_record(record, path)
    read = load_record(paths[0])
    assert (read.classes, read.images, read.step, read.kind) == (record.classes, record.images, 3, "validation")
    assert read.convention == "plop"
    for part, whole in zip(read.confusions, record.confusions, strict=True):
        assert part.tolist() == whole.tolist()
    assert np.allclose(read.reliability.confidence, record.reliability.confidence, rtol=1e-6)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"no zip file",
        lambda good: good[:-40],
        lambda good: good[:60] + b"\xff" * 8 + good[68:],
    ],
    ids=["empty", "text", "cut off", "changed"],
)
def test_damaged_file_is_a_plain_error(tmp_path, damage):
    path = tmp_path / "evaluation.npz"
    save_record(random_record(images=2), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match="damaged"):
        load_record(path)


def test_missing_file_is_a_plain_error(tmp_path):
    with pytest.raises(UserError, match="no record"):
        load_record(tmp_path / "none.npz")
