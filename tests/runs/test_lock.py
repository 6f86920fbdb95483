"""The lock of a run folder: one process at a time, freed however a process ends."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from faircl.errors import UserError
from faircl.runs.folder import RunFolder
from faircl.runs.lock import RunLock
from faircl.runs.room import check_room, check_writable

HOLD = """
import os, sys, time
from pathlib import Path
from faircl.runs.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
child = os.fork()  # as a data loader forks its workers
if child:
    print(child, flush=True)
time.sleep(60)
"""


@contextmanager
def held(folder):
    """A process that holds the lock of a folder, killed at the end; its child lives a little longer."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        children.append(child)


children = []


@pytest.fixture(autouse=True)
def _no_child_is_left():
    yield
    while children:
        os.kill(children.pop(), signal.SIGKILL)


def test_another_process_is_refused_and_named(tmp_path):
    with held(tmp_path) as holder, pytest.raises(UserError, match=r"is training into .*; wait for its end") as error:
        RunLock(tmp_path).acquire()
    assert str(error.value).startswith(f"Another process, number {holder.pid}, is training into {tmp_path};")
    with RunLock(tmp_path) as lock:  # the child of the other lives, and does not hold the lock
        lock.acquire()
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_it_is_freed_at_the_end(tmp_path):
    for _ in range(2):
        with RunLock(tmp_path) as lock:
            lock.acquire()
            lock.acquire()


def test_a_run_that_is_being_trained_is_not_resumed(tiny_run, tiny_train, tmp_path):
    path = shutil.copytree(tiny_run.path, tmp_path / "run")
    with held(path), pytest.raises(UserError, match="is training into"):
        tiny_train(path, resume=True)
    assert tiny_train(path, resume=True).finished_steps() == 2


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_trained_into(number, tmp_path, monkeypatch):
    def refuse(handle, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.lockf", refuse)
    with RunLock(tmp_path) as lock:
        lock.acquire()


# ---- room


def test_too_little_room_is_found_before_training(tmp_path):
    with pytest.raises(UserError, match=r"will write about \d+\.\d GB into .*, where .* GB are free; make room"):
        check_room(RunFolder(tmp_path), 10**15, 10**15, 2)
    check_room(RunFolder(tmp_path), 1000, 2000, 2)
    assert not any(tmp_path.iterdir())
    check_writable(RunFolder(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "steps"]
    assert not any(tmp_path.rglob("*/*"))


def test_checkpoints_that_are_there_need_no_more_room(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1500))
    with pytest.raises(UserError, match="make room"):
        check_room(RunFolder(tmp_path), 100, 800, 1)
    (tmp_path / "checkpoints/00-00000001").mkdir(parents=True)
    (tmp_path / "checkpoints/00-00000001/model.safetensors").write_bytes(bytes(1000))
    check_room(RunFolder(tmp_path), 100, 800, 1)


@pytest.mark.parametrize("place", ["steps", "checkpoints"])
def test_a_place_that_cannot_be_written_is_found_before_training(place, tmp_path):
    (tmp_path / place).write_text("a file in the place of the folder")
    with pytest.raises(UserError, match=f"Cannot write .*{place}: File exists"):
        check_writable(RunFolder(tmp_path))
