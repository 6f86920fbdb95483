"""The command line under torchrun: results and mistakes are printed once, and nobody waits for a process that left."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from processes import command

from faircl import distributed
from faircl.cli import app
from faircl.distributed import FAILURE_WAIT

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")
SHORT = ("--set", "train.epochs=0.4", "--set", "train.later_epochs=0.4", "--set", "method=finetune")
NORM = ("--set", "model.norm=group")


@pytest.mark.slow
def test_torchrun_prints_json_once(tiny_flags, tmp_path):
    program = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "faircl"]
    done = subprocess.run(
        [*program, "train", "demo", "--out", tmp_path / "run", "--json", *tiny_flags, *SHORT, *NORM],
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert [step["step"] for step in run["steps"]] == [0, 1]
    assert [line[:6] for line in done.stderr.splitlines() if line.startswith("step")] == ["step 0", "step 1"]
    assert "Warning" not in done.stderr


@pytest.mark.slow
def test_evaluating_again_prints_a_table_once(tiny_run, tmp_path):
    first, *others = command(tmp_path, *[["eval", tiny_run.path, "--step", "1", "--json"]] * 3)
    assert (first.code, *(other.code for other in others)) == (0, 0, 0)
    (step,) = json.loads(first.out)["runs"][0]["steps"]
    recorded = tiny_run.records("eval")[1]
    assert step["classes"] == recorded["classes"]
    assert all(other.out == other.err == "" for other in others)


@pytest.mark.parametrize(("code", "left"), [(None, 0), (0, 0), (1, 1)])
def test_one_of_several_processes_leaves_without_the_interpreters_end(code, left, monkeypatch):
    said = []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(app, "app", lambda: sys.exit(code))
    monkeypatch.setattr(app.atexit, "_run_exitfuncs", lambda: said.append("exit functions"))
    monkeypatch.setattr(os, "_exit", said.append)
    with pytest.raises(SystemExit):  # os._exit would not have returned
        app.run()
    assert said == ["exit functions", left]


def test_a_process_that_never_met_the_others_leaves_as_any_other(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(app, "app", lambda: sys.exit(1))
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("left without the interpreter's end"))
    with pytest.raises(SystemExit, match="1"):
        app.run()


def stopped(first, *others, said):
    """All processes left with code 2, and process 0 said why in one line."""
    assert [left.code for left in (first, *others)] == [2] * (1 + len(others))
    (line,) = [line for line in first.err.splitlines() if line.startswith("faircl: ")]
    assert said in line
    assert "Traceback" not in first.err
    assert all(other.out == other.err == "" for other in others)


def test_a_folder_that_is_not_free(tiny_flags, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/other.txt").write_text("mine")
    line = ["train", "demo", "--out", tmp_path / "run", *tiny_flags]
    stopped(*command(tmp_path, line, line), said="holds other files; choose an empty or new folder")


def test_data_that_cannot_be_read(street, tmp_path):
    (street / "masks/train/train-00003.png").write_bytes(b"no image")
    line = ["train", "folder", "--task", "6-4", "--out", tmp_path / "run", "--set", f"data.root={street}"]
    stopped(*command(tmp_path, line, line), said="train-00003.png")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("train.bath=3", "Did you mean 'batch'?"),
        ("train.batch=2", "which leaves some of the 3 processes without an image"),
        ("train.sync_norm=always", "SyncBatchNorm needs GPUs"),
        ("optim.lr=1e30", "The loss is not finite at step 0, iteration 2"),
    ],
)
def test_a_mistake_that_all_processes_find(setting, said, tiny_flags, tmp_path):
    if torch.cuda.is_available():
        tiny_flags = [*tiny_flags, "--set", "train.accelerator=cpu"]
    line = ["train", "demo", "--out", tmp_path / "run", *tiny_flags, *SHORT, *NORM, "--set", "train.epochs=1"]
    stopped(*command(tmp_path, *[[*line, "--set", setting]] * 3), said=said)


@pytest.mark.slow
def test_a_mistake_of_one_process_is_said_with_its_number_and_stops_all(street, tmp_path):
    lines = [
        ["train", "folder", "--task", "6-4", "--out", tmp_path / "run", "--set", f"data.root={root}"]
        for root in (street, tmp_path / "nowhere")
    ]
    first, second = command(tmp_path, *lines, seconds=20 + FAILURE_WAIT)
    assert (first.code, second.code) == (2, 2)
    assert first.err == ""
    (said,) = second.err.splitlines()
    assert said.startswith("process 1: faircl: ")
    assert "nowhere" in said


def test_a_mistake_of_the_first_process_stops_all(street, tmp_path):
    lines = [
        ["train", "folder", "--task", "6-4", "--out", tmp_path / "run", "--set", f"data.root={root}"]
        for root in (tmp_path / "nowhere", street)
    ]
    stopped(*command(tmp_path, *lines, seconds=20 + FAILURE_WAIT), said="nowhere")
