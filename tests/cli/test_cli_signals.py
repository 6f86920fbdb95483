"""Signals and a running training process: it saves, leaves with a sentence and the usual exit code, and goes on."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from run_files import records, states

from faircl.engine.in_step_checkpoints import InStepCheckpoints
from faircl.engine.trainer import _resume_command
from faircl.runs.folder import RunFolder
from faircl.stop_signals import StopSignals

MORE = ["--set", "train.epochs=40", "--set", "train.later_epochs=1", "--set", "train.log_every=20"]


def start(out, flags, *more):
    return subprocess.Popen(
        [sys.executable, "-m", "faircl", "train", "demo", "--out", str(out), *flags, *MORE, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Shells start what runs in the background deaf to Ctrl-C, and nohup to SIGHUP, tests perhaps among it.
        preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGHUP)],
    )


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, tiny_flags):
    out = tmp_path_factory.mktemp("whole") / "run"
    process = start(out, tiny_flags)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return RunFolder(out)


def test_a_signal_in_this_process(cli, tmp_path, tiny_flags, monkeypatch):
    """The exit code and the sentence; tests/engine/test_in_step.py resumes such runs."""
    due = InStepCheckpoints.due

    def signalled(self):
        signal.raise_signal(signal.SIGTERM)
        return due(self)

    monkeypatch.setattr(InStepCheckpoints, "due", signalled)
    result = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags)
    assert (result.code, result.out) == (128 + signal.SIGTERM, "")
    assert result.err.splitlines()[-1] == (
        "faircl: stopped by SIGTERM at step 0 after update 1 of 6, which is saved; continue with: "
        f"faircl train --resume {tmp_path / 'run'}"
    )
    assert len(list((tmp_path / "run/checkpoints").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_saves_the_update_and_leaves(name, undisturbed, tmp_path, tiny_flags):
    number = getattr(signal, name)
    process = start(tmp_path / "run", tiny_flags)
    wait_for(tmp_path / "run/metrics.jsonl", process)  # the first twenty updates are done
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, ""), err
    last = err.splitlines()[-1]
    assert last.startswith(f"faircl: stopped by {name} at step 0 after update ")
    assert last.endswith(f" of 120, which is saved; continue with: faircl train --resume {tmp_path / 'run'}")
    assert "Traceback" not in err
    process = start(tmp_path / "run", tiny_flags, "--resume")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert states(RunFolder(tmp_path / "run")) == states(undisturbed)
    assert records(RunFolder(tmp_path / "run")) == records(undisturbed)
    assert not (tmp_path / "run/checkpoints").exists()


@pytest.mark.slow
def test_signals_that_are_ignored_stay_so(tmp_path, tiny_flags):
    """As under nohup, which starts a process that ignores SIGHUP."""
    command = f"trap '' HUP; exec '{sys.executable}' -m faircl train demo --out '{tmp_path / 'run'}' "
    process = subprocess.Popen(
        ["bash", "-c", command + " ".join(f"'{flag}'" for flag in (*tiny_flags, *MORE))],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    wait_for(tmp_path / "run/metrics.jsonl", process)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def test_the_command_that_continues_can_be_pasted(tiny_run, street, tiny_config, tiny_train, tmp_path):
    shutil.copytree(tiny_run.path, tmp_path / "my run")
    folder = RunFolder(tmp_path / "my run")
    assert _resume_command(folder, tiny_run.config()) == f"faircl train --resume '{tmp_path}/my run'"
    begun, moved = (tiny_config(root=root) for root in (street, tmp_path / "moved to"))
    folder.write_text("config.yaml", begun.to_yaml())
    expected = f"faircl train --resume '{tmp_path}/my run' --root '{tmp_path}/moved to'"
    assert _resume_command(folder, moved) == expected


def test_handlers_that_a_library_replaced_are_set_again():
    before = signal.getsignal(signal.SIGUSR1)
    with StopSignals("faircl train --resume run") as signals, signals.deferred():
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        signal.raise_signal(signal.SIGUSR1)
        assert signals.received == 0
        signals.renew()
        signal.raise_signal(signal.SIGUSR1)
        assert signals.received == signal.SIGUSR1
        signals.received = 0
    assert signal.getsignal(signal.SIGUSR1) == before
