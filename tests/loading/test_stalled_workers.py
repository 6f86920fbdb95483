"""Workers that do not answer, among them a real one that is stopped."""

import os
import re
import signal
import sys
import threading
import time

import pytest
from torch.utils.data import DataLoader, Dataset

from faircl.loading.stalled_workers import say_if_stalled, stall_message

PATIENCE = 0.3


class Pids(Dataset):
    """Items are the process that reads them; the fourth takes ``seconds``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 3:
            time.sleep(self.seconds)
        return os.getpid()


def loader(seconds: float = 0.0, workers: int = 1):
    return DataLoader(Pids(seconds), batch_size=None, num_workers=workers, prefetch_factor=1 if workers else None)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_stopped_worker_is_named_and_can_be_continued(silent):
    reporter = silent()
    items = say_if_stalled(loader(), reporter, PATIENCE)
    pid = next(items)
    os.kill(pid, signal.SIGSTOP)
    told = []

    def go_on():
        """Do what the message says as soon as it has been said."""
        deadline = time.monotonic() + 10
        while not reporter.said and time.monotonic() < deadline:
            time.sleep(0.02)
        told.extend(reporter.said)
        os.kill(pid, signal.SIGCONT)

    helper = threading.Thread(target=go_on)
    helper.start()
    rest = list(items)
    helper.join()
    assert rest == [pid] * 7
    assert reporter.said == told  # said once
    assert re.fullmatch(
        rf"warning: no image has come for \d+ s from the processes that read images\. Process {pid} is stopped; "
        rf"continue with: kill -CONT {pid}",
        told[0],
    )


def test_a_slow_worker_is_waited_for_with_a_word(silent):
    reporter = silent()
    assert len(list(say_if_stalled(loader(0.8), reporter, PATIENCE))) == 8
    (said,) = reporter.said
    assert re.search(r"no image has come for \d+ s .* \(\d+\); training waits for them", said)


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_said_while_images_come_or_nobody_waits(workers, silent):
    reporter = silent()
    items = say_if_stalled(loader(workers=workers), reporter, PATIENCE)
    next(items)
    time.sleep(2 * PATIENCE)  # the network works
    assert len(list(items)) == 7
    assert reporter.said == []


def test_a_loader_that_is_left_leaves_no_thread(silent):
    before = set(threading.enumerate())  # one that another test has left may end meanwhile
    items = say_if_stalled(loader(), silent(), PATIENCE)
    next(items)
    assert set(threading.enumerate()) - before
    items.close()
    until = time.monotonic() + 5  # threads of the data loader itself take a moment to end
    while set(threading.enumerate()) - before and time.monotonic() < until:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def test_several_stopped_processes_are_all_named(monkeypatch):
    monkeypatch.setattr("faircl.loading.stalled_workers._state", {7: "T", 8: "S", 9: "T"}.get)
    assert stall_message([7, 8, 9], 31.2).endswith("Processes 7, 9 are stopped; continue with: kill -CONT 7 9")
    assert "for 31 s from" in stall_message([7, 8, 9], 31.2)


def test_training_scanning_and_evaluating_all_have_somebody_to_tell(tiny_train, silent, tmp_path, monkeypatch):
    told, reporter = [], silent()

    def watch(items, log):
        told.append((reporter.tasks[-1], log.reporter))
        return iter(items)

    for module in ("loader", "whole_images"):
        monkeypatch.setattr(f"faircl.loading.{module}.say_if_stalled", watch)
    tiny_train(tmp_path / "run", "method.assign=prototype", reporter=reporter)
    expected = [f"step {step} {task}" for step in (0, 1) for task in ("scan", "train", "evaluate")]
    assert [task for task, _ in told] == [task for task in expected if task in reporter.tasks]
    assert "step 1 scan" in reporter.tasks
    assert {other for _, other in told} == {reporter}
