"""The networks of a run: which there are, which stay in memory, and that they predict as `Predictor` does."""

import numpy as np
import pytest

import faircl
from faircl.runs.versions import VersionChain
from faircl.serving.limits import Refused
from faircl.serving.networks import Choice, Networks, find_choices


def test_two_networks_stay_in_memory():
    loaded = []
    choices = [Choice(0, step, f"step {step}") for step in range(3)]
    networks = Networks(choices, lambda choice: loaded.append(choice.key) or choice.key)
    assert [networks.get(key) for key in ("0-0", "0-1", "0-0", "0-2", "0-0", "0-1")] == [
        "0-0",
        "0-1",
        "0-0",
        "0-2",
        "0-0",
        "0-1",
    ]
    assert loaded == ["0-0", "0-1", "0-2", "0-1"]  # 0-1 had to go for 0-2
    with pytest.raises(Refused, match="no network '0-3'"):
        networks.get("0-3")


@pytest.fixture(scope="module")
def versioned(tiny_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("versioned") / "run"
    faircl.rename_classes(tiny_run.path, {"car": "auto"}, out, reporter=faircl.SilentReporter())
    return out


def test_steps_and_versions_can_be_chosen(tiny_run, versioned):
    choices, current = find_choices(VersionChain.open(tiny_run.path))
    assert [(one.key, one.label) for one in choices] == [
        ("0-0", "step 0: 7 classes"),
        ("0-1", f"step 1: adds {', '.join(tiny_run.load_scenario().names[7:])}"),
    ]
    assert current == 1
    choices, current = find_choices(VersionChain.open(versioned))
    assert choices[-1].label == "version 1: renamed car to auto"
    assert current == 2


def test_a_served_network_predicts_as_a_predictor_does(versioned):
    from faircl.api.serving import ServedNetwork

    image = np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8)
    for version, step in ((0, 0), (0, 1), (1, -1)):
        predictor = faircl.load(versioned, step, "cpu", version=version)
        network = ServedNetwork(predictor)
        found, expected = network.segment(image, None), predictor.predict(image, unknown=True)
        assert np.array_equal(found.mask, expected.mask)
        assert np.array_equal(found.unknown, expected.unknown)
        assert network.score == "relative-mahalanobis+entropy"
        assert (network.names, network.background) == (predictor.names, 0)
