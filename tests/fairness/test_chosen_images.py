"""The choice of images, on records counted by hand."""

import math

import numpy as np
import pytest
from records import named, record_of

from faircl.fairness.chosen_images import choose_images, image_scores

TRUTH = np.array([[0, 0, 1, 1]])
GUESSES = {"good": [[0, 0, 1, 1]], "half": [[0, 0, 1, 0]], "bad": [[1, 1, 1, 1]], "lost": [[0, 0, 0, 0]]}


@pytest.fixture
def record():
    pairs = [(TRUTH, np.array(guess)) for guess in GUESSES.values()]
    return record_of([*pairs, (np.full((1, 4), 255), TRUTH)], named(2), [*GUESSES, "ignored"])


def test_scores_are_means_over_the_classes_of_an_image(record):
    expected = [100, 100 * (2 / 3 + 1 / 2) / 2, 100 * (0 + 1 / 2) / 2, 100 * (1 / 2 + 0) / 2, math.nan]
    assert image_scores(record).tolist() == pytest.approx(expected, nan_ok=True)


def test_every_kind_has_its_turn_and_reasons_are_joined(record):
    chosen = choose_images(record, None, most=3)
    # Classes: 0 has 6 hits, 8 of the truth, 9 predicted; 1 has 5, 8 and 7. Class 1 misses most pixels in "lost".
    assert [record.images[k] for k in chosen] == ["bad", "lost", "half"]
    assert chosen[2] == ["worst image: mean IoU 25.0", "worst class: c0, IoU 54.5"]
    assert chosen[3] == ["worst class: c1, IoU 50.0", "worst image: mean IoU 25.0"]
    assert chosen[1] == ["median image: mean IoU 58.3", "worst image: mean IoU 58.3"]


def test_losses_since_the_step_before_are_by_shared_images_and_classes(record):
    before = record_of([(TRUTH, TRUTH), (TRUTH, TRUTH)], named(2), ["lost", "gone"])
    reasons = [why for found in choose_images(record, before, most=9).values() for why in found]
    assert [why for why in reasons if why.startswith("lost")] == ["lost since the step before: c1, 100.0 of 100 pixels"]


def test_nothing_to_choose_from():
    empty = record_of([(np.full((2, 2), 255), np.zeros((2, 2), int))], named(2))
    assert choose_images(empty, None, most=4) == {}
    assert choose_images(empty, empty, most=4) == {}
