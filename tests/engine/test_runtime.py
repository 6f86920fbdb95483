"""Devices, precision, process-wide settings and out-of-memory errors."""

import pytest
import torch
from safetensors.torch import load_file

from faircl.config.schema import TrainConfig
from faircl.engine.reevaluate import evaluate_again
from faircl.engine.runtime import (
    explain_out_of_memory,
    make_fabric,
    process_settings,
    rank_zero_reporter,
    smallest_local_batch,
)
from faircl.errors import UserError
from faircl.progress import SilentReporter


@pytest.mark.parametrize(
    "method",
    [
        "{name: faircl-paper, assign: prototype, reject: 0.1, fairness: kl, histogram_momentum: 0.5}",
        "{name: faircl, fairness: kl, histogram_momentum: 0.5}",
    ],
)
def test_double_precision_holds_from_end_to_end(method, tiny_train, silent, tmp_path):
    folder = tiny_train(tmp_path / "run", "train.precision=fp64", f"method={method}")
    assert torch.get_default_dtype() == torch.float32
    for step in (0, 1):
        for part in ("model", "method"):
            state = load_file(folder.step_path(step) / f"{part}.safetensors")
            remembered = state.pop("memory.features", torch.zeros(0, dtype=torch.float16))
            assert remembered.dtype == torch.float16  # whatever the precision of training
            assert {v.dtype for v in state.values() if v.is_floating_point()} == {torch.float64}
    again = [metrics.to_json() for metrics in evaluate_again(folder, silent())]
    assert again == [{key: record[key] for key in again[0]} for record in folder.records("eval")]


def test_double_precision_resumes_bitwise(tiny_train, silent, tmp_path):
    exact = ("train.precision=fp64", "train.epochs=1")
    whole = tiny_train(tmp_path / "whole", *exact)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", *exact, reporter=silent("step 1 train"))
    assert torch.get_default_dtype() == torch.float32
    resumed = tiny_train(tmp_path / "run", *exact, resume=True)
    for part in ("model", "method"):
        states = [(folder.step_path(1) / f"{part}.safetensors").read_bytes() for folder in (whole, resumed)]
        assert states[0] == states[1]


def test_settings_are_put_back_after_an_error():
    def work():
        assert torch.get_default_dtype() == torch.float64
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), process_settings(TrainConfig(precision="fp64", threads=2)):
        work()
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_num_threads() == 1


def test_more_processes_than_gpus(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    words = r"started 4 processes on this machine, but torch sees 2 GPUs here; .*--nproc-per-node 2"
    with pytest.raises(UserError, match=words):
        make_fabric(TrainConfig())


@pytest.mark.parametrize(("batch", "world", "share"), [(5, 1, 5), (5, 2, 2), (8, 4, 2), (4, 4, 1)])
def test_smallest_share_of_a_batch(batch, world, share, monkeypatch):
    monkeypatch.setattr("faircl.engine.runtime.world_size", lambda: world)
    assert smallest_local_batch(TrainConfig(batch=batch)) == share


def test_a_batch_that_is_too_small_for_the_processes(monkeypatch):
    monkeypatch.setattr("faircl.engine.runtime.world_size", lambda: 4)
    with pytest.raises(UserError, match=r"train\.batch is 3, .* 4 processes .* start fewer processes"):
        smallest_local_batch(TrainConfig(batch=3))


def test_only_the_first_process_speaks(silent, monkeypatch):
    reporter = silent()
    assert rank_zero_reporter(reporter) is reporter
    monkeypatch.setattr("faircl.engine.runtime.rank", lambda: 1)
    quiet = rank_zero_reporter(reporter)
    assert isinstance(quiet, SilentReporter)
    quiet.say("nothing")
    with quiet.task("nothing", 3) as task:
        task.advance("nothing")
    assert reporter.said == reporter.tasks == []


@pytest.mark.parametrize("text", ["is killed by signal: Killed. ", "(s) 12 exited unexpectedly"])
def test_a_worker_that_was_ended_is_a_sentence(text):
    with (
        pytest.raises(UserError, match="often because the machine ran out of memory") as caught,
        explain_out_of_memory(),
    ):
        raise RuntimeError(f"DataLoader worker (pid{' 12)' if 'signal' in text else ''} {text}")
    assert "\n" not in str(caught.value)
