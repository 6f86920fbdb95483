"""The command line under torchrun: results and mistakes are printed once, and nobody waits for a process that left."""

import errno
import io
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
from faircl.errors import UserError

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


class Lost(io.StringIO):
    """A stream whose text cannot be written."""

    def __init__(self, number):
        super().__init__()
        self.error = OSError(number, os.strerror(number))

    def flush(self):
        raise self.error


@pytest.mark.parametrize(
    ("number", "code", "left", "said"),
    [
        (errno.ENOSPC, 0, 2, "faircl: the system refused: No space left on device.\n"),
        (errno.ENOSPC, 1, 1, "faircl: the system refused: No space left on device.\n"),
        (errno.EPIPE, 0, 0, ""),
    ],
)
def test_output_that_one_of_several_processes_cannot_write(number, code, left, said, monkeypatch, capsys):
    exits = []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(app, "app", lambda: sys.exit(code))
    monkeypatch.setattr(app.atexit, "_run_exitfuncs", lambda: None)
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr(sys, "stdout", Lost(number))
    with pytest.raises(SystemExit):  # os._exit would not have returned
        app.run()
    assert exits == [left]
    assert capsys.readouterr().err == said


def test_a_mistake_is_said_and_nobody_is_waited_for_where_output_is_lost(monkeypatch):
    def stop():
        raise UserError("no room.")

    exits, said = [], []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(distributed, "report_failure", lambda text, say: said.append(text))
    monkeypatch.setattr(app, "app", stop)
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr(sys, "stdout", Lost(errno.ENOSPC))
    app.run()  # os._exit would not have returned
    assert (exits, said) == ([2], ["faircl: no room."])


@pytest.mark.parametrize("lost", ["stdout", "stderr"])
def test_the_other_stream_is_written_where_one_is_lost(lost, monkeypatch):
    written, other = [], "stderr" if lost == "stdout" else "stdout"
    monkeypatch.setattr(sys, lost, Lost(errno.EPIPE))
    monkeypatch.setattr(getattr(sys, other), "flush", lambda: written.append(other))
    assert app._flushed(0) == 0
    assert written == [other]


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
