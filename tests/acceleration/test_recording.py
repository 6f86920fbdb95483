"""Training and prediction record one at a time, and compare nothing while another thread records."""

import threading

import pytest
import torch
from network_tester import images, lively

from faircl.acceleration import cuda_graphs, inference, replays
from faircl.acceleration.cuda_graphs import replayed
from faircl.acceleration.inference import InferenceNetwork
from faircl.acceleration.recording import ONE_AT_A_TIME
from faircl.acceleration.replays import EAGER, CudaRecorder, Replays
from faircl.config.run import resolve
from faircl.methods.finetune import FineTune, FineTuneConfig


@pytest.fixture
def network():
    return lively({"name": "small", "width": 8}, 3, 2)


def waits():
    """Whether another thread that wants to record has to wait."""
    got = []

    def attempt():
        got.append(ONE_AT_A_TIME.acquire(blocking=False))
        if got[0]:
            ONE_AT_A_TIME.release()

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return not got[0]


@pytest.fixture
def watch(monkeypatch):
    """Replace a function by a fake that notes whether others wait meanwhile; return the notes."""
    noted = {}

    def fake(module, name, result):
        def called(*given, **named):
            noted[name] = waits()
            return result(*given, **named) if callable(result) else result

        monkeypatch.setattr(module, name, called)
        return noted

    return fake


def test_a_prediction_records_and_compares_alone(watch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "stream")
    watch(replays, "recording_problem", "")
    watch(replays, "record_forward", lambda forward, fixed, **_: forward)
    noted = watch(replays, "_alike", True)
    with ONE_AT_A_TIME:  # by the same thread, as where training evaluates
        assert CudaRecorder(torch.nn.Identity())(lambda given: (given,), torch.zeros(1)) is not None
    assert not waits()
    assert CudaRecorder(torch.nn.Identity())(lambda given: (given,), torch.zeros(1)) is not None
    assert noted == {"recording_problem": True, "record_forward": True, "_alike": True}
    assert not waits()


def test_recordings_are_freed_alone(watch):
    noted = watch(torch.cuda, "synchronize", None)
    watch(torch.cuda, "empty_cache", None)
    run = Replays(lambda given: (given,), lambda forward, batch: forward)
    for _ in range(EAGER + 1):
        run(torch.zeros((1, 3, 4, 4)), 1)
    assert run.drop()
    assert noted == {"synchronize": True, "empty_cache": True}
    assert not waits()


def test_a_copy_is_prepared_alone(network, watch):
    noted = watch(inference, "prepared", lambda given, half: given)
    InferenceNetwork(network, prepare=True)(images())
    assert noted == {"prepared": True}
    assert not waits()


def test_training_records_alone(network, watch, silent):
    noted, config = (
        watch(cuda_graphs, "_record", ""),
        resolve({"data": "scenes", "model": "small", "method": "finetune"}),
    )
    with replayed(network, FineTune(FineTuneConfig(), network), config, torch.device("cuda"), silent()):
        assert not waits()
    assert noted == {"_record": True}
