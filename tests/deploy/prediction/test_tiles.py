"""Tiles: exact for networks that see a bounded part of the image, close for others."""

import numpy as np
import pytest
import torch
from torch import nn

import faircl
from faircl.deploy.prediction.inference import Inference
from faircl.deploy.prediction.options import PredictOptions
from faircl.deploy.prediction.stripes import joined, segmented
from faircl.models.segmenter import Segmenter

RANDOM = np.random.default_rng(0)


class Convolutions(nn.Module):
    """Two convolutions at stride 4; a logit depends on 29 pixels in each direction at most."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 7, 4, 3), nn.Tanh(), nn.Conv2d(8, 8, 5, 1, 2), nn.Tanh())

    def forward(self, image):
        return (self.layers(image),)


class Last(nn.Module):
    def forward(self, stages):
        return stages[-1]


@pytest.fixture(scope="module")
def local(tiny_run) -> Inference:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Segmenter(Convolutions(), Last(), embedding_width=8, stage_widths=(8,))
        network.classifier.grow(11)
        nn.init.normal_(network.classifier.heads[0].weight)
    scenario = tiny_run.load_scenario()
    return Inference(network.eval(), scenario, 1, torch.device("cpu"), tiny_run.step_path(1))


def maps(inference, image, **options):
    chosen = PredictOptions(probabilities=True, unknown="max-softmax", **options)
    ((_, _, stripes),) = segmented(inference, [(0, image)], chosen)
    stripes = list(stripes)
    assert [one.top for one in stripes] == [0, *np.cumsum([len(one.image) for one in stripes])[:-1]]
    assert np.array_equal(np.concatenate([one.image for one in stripes]), image)
    return joined(stripes)


@pytest.mark.parametrize("size", [(256, 192), (288, 132), (96, 320), (64, 64)])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("flip", [False, True])
def test_exact_for_a_local_network(local, size, batch, flip):
    image = RANDOM.integers(0, 256, (*size, 3), np.uint8)
    whole, tiles = maps(local, image, flip=flip), maps(local, image, tile=128, overlap=64, batch=batch, flip=flip)
    assert np.array_equal(whole.mask, tiles.mask)
    assert len(np.unique(whole.mask)) > 5
    assert np.allclose(whole.unknown, tiles.unknown, atol=1e-5)
    assert np.allclose(whole.probabilities, tiles.probabilities, atol=2e-3)  # float16


def test_the_same_test_sees_an_overlap_that_is_too_small(local):
    image = RANDOM.integers(0, 256, (256, 256, 3), np.uint8)
    assert not np.array_equal(maps(local, image).mask, maps(local, image, tile=128, overlap=0).mask)


def test_odd_sizes_are_covered(local):
    image = RANDOM.integers(0, 256, (203, 301, 3), np.uint8)
    whole, tiles = maps(local, image).mask, maps(local, image, tile=128, overlap=64).mask
    assert tiles.shape == (203, 301)
    # The whole image's logits are stretched over a side that is no multiple of the stride, those of a window are not.
    assert (whole == tiles).mean() > 0.7


def test_the_small_network_is_local(tiny_run):
    """Its logits depend on 71 pixels in each direction at most."""
    image = RANDOM.integers(0, 256, (512, 416, 3), np.uint8)
    predictor = faircl.load(tiny_run.path, device="cpu")
    whole, tiles = predictor.predict(image), predictor.predict(image, tile=320, overlap=160)
    assert np.array_equal(whole.mask, tiles.mask)
