"""A batch that does not fit beside recorded passes gets their memory; one that does not fit at all is a sentence."""

import numpy as np
import pytest
import torch

import faircl
from faircl.errors import UserError

PHOTO = np.zeros((64, 96, 3), np.uint8)


@pytest.fixture
def short(tiny_run, monkeypatch):
    """A predictor whose network runs out of memory until recorded passes are dropped; how often they were."""
    predictor, dropped = faircl.load(tiny_run.path, device="cpu"), []
    forward = predictor.inference._forward

    def fails(images, options):
        if not any(dropped):
            raise torch.OutOfMemoryError("out of memory")
        return forward(images, options)

    monkeypatch.setattr(predictor.inference, "_forward", fails)
    return predictor, dropped


def test_recorded_passes_are_dropped_and_the_batch_is_tried_again(short, tiny_run, monkeypatch):
    predictor, dropped = short
    monkeypatch.setattr(predictor.inference._outputs, "drop", lambda: dropped.append(True) or True)
    mask = predictor.predict(PHOTO).mask
    assert np.array_equal(mask, faircl.load(tiny_run.path, device="cpu").predict(PHOTO).mask)
    assert dropped == [True]


def test_without_recorded_passes_it_is_an_error(short):
    with pytest.raises(UserError, match="memory"):
        short[0].predict(PHOTO)
