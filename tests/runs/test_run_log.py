"""The log of a run: what is in it, resuming, and what happens if it, or the terminal, cannot be written."""

import errno
import io
import re
import sys
from datetime import datetime

import pytest

from faircl import timed_lines
from faircl.errors import Interrupted, UserError
from faircl.progress import ConsoleReporter, SilentReporter
from faircl.runs import run_log
from faircl.runs.run_log import LoggedReporter


def texts(folder):
    """Return the lines of a log without their time stamps, which must be times."""
    found = []
    for line in (folder / "train.log").read_text(encoding="utf-8").splitlines():
        stamp, _, text = line.partition(" ")
        assert datetime.fromisoformat(stamp).tzinfo is not None
        found.append(text)
    return found


def test_what_is_said_before_the_folder_exists_is_written_later(tmp_path, silent):
    other = silent()
    log = LoggedReporter(other)
    log.say("warning: early")
    log.open(tmp_path)
    log.say("one\n two\n\n")
    assert other.said == ["warning: early", "one\n two\n\n"]
    begun, *rest = texts(tmp_path)
    assert re.fullmatch(r"begun by faircl \S+, process \d+", begun)
    assert rest == ["warning: early", "one", " two"]


def test_a_resumed_run_appends(tmp_path):
    for _ in range(2):
        log = LoggedReporter(SilentReporter())
        log.open(tmp_path)
        log.say("step")
    found = [text.split(" by")[0] for text in texts(tmp_path)]
    assert found == ["begun", "step", "resumed", "step"]


def test_progress_is_written_and_shown(tmp_path, silent, monkeypatch):
    monkeypatch.setattr(timed_lines, "SHORT", 0.0)
    advanced = []
    other = silent()
    other.advance = advanced.append
    log = LoggedReporter(other)
    log.open(tmp_path)
    with log.task("scan", 2) as task:
        task.advance("loss 1")
        task.advance("loss 2")
    assert (other.tasks, advanced) == (["scan"], ["loss 1", "loss 2"])
    assert texts(tmp_path)[1:] == ["scan: 2/2 in 0 s, loss 2"]


def test_progress_is_written_while_a_task_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr(run_log, "PROGRESS_SECONDS", 0.02)
    log = LoggedReporter(SilentReporter())
    log.open(tmp_path)
    with log.task("scan", 2) as task:
        task.advance()
        deadline = datetime.now().timestamp() + 5
        while len(texts(tmp_path)) < 3 and datetime.now().timestamp() < deadline:
            pass
    assert texts(tmp_path)[2].startswith("scan: 1/2 after 0 s, no update for 0 s")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("The disk is full."), "stopped: The disk is full."),
        (KeyboardInterrupt(), "stopped by KeyboardInterrupt"),
        (Interrupted("stopped by SIGTERM; go on", 15), "stopped by SIGTERM; go on"),
        (RuntimeError("odd"), "stopped by RuntimeError: odd"),
        (None, "finished"),
    ],
)
def test_the_end_is_written(error, line, tmp_path):
    log = LoggedReporter(SilentReporter())
    log.open(tmp_path)

    def work():
        with log.until_end():
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(type(error)):
            work()
    assert texts(tmp_path)[-1] == f"{line} (after 0 s)"


def test_a_log_that_cannot_be_written_is_no_error(tmp_path, silent):
    (tmp_path / "train.log").mkdir()
    other = silent()
    log = LoggedReporter(other)
    log.open(tmp_path)
    log.say("a")
    log.say("b")
    assert other.said == [
        f"note: {tmp_path / 'train.log'} cannot be written: Is a directory; training goes on",
        "a",
        "b",
    ]


def test_only_rank_zero_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(run_log, "rank", lambda: 1)
    log = LoggedReporter(SilentReporter())
    log.say("a")
    log.open(tmp_path)
    log.say("b")
    assert not list(tmp_path.iterdir())


def test_a_terminal_that_is_gone_is_said_once(tmp_path, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stderr", Gone())
    log = LoggedReporter(ConsoleReporter())
    log.open(tmp_path)
    log.say("a")
    log.say("b")
    assert texts(tmp_path)[1:] == ["a", "progress can no longer be shown: Broken pipe; training goes on", "b"]


def test_a_run_leaves_its_log(tiny_run):
    found = texts(tiny_run.path)
    assert re.fullmatch(r"begun by faircl \S+, process \d+", found[0])
    assert found[1].startswith("data ")
    assert re.fullmatch(r"finished \(after \d+ s\)", found[-1])
    (new,) = [record["miou"]["new"] for record in tiny_run.records("eval") if record["step"] == 0]
    assert any(line.startswith(f"after step 0: new {new:.1f}, all ") for line in found)
    assert sum(line.startswith("step 1: ") for line in found) == 1
    road = next(row for row in tiny_run.records("eval")[1]["classes"] if row["name"] == "road")
    assert any(line.split()[:3] == ["road", "0", f"{road['iou']:.1f}"] for line in found)


def test_a_stopped_run_says_so_and_goes_on_in_the_same_log(tiny_train, silent, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", reporter=silent("step 1 train"))
    tiny_train(tmp_path / "run", resume=True)
    found = texts(tmp_path / "run")
    where = [k for k, line in enumerate(found) if line.startswith(("begun", "stopped by Key", "resumed", "finished"))]
    assert [found[k].split()[0] for k in where] == ["begun", "stopped", "resumed", "resumed", "finished"]
    assert found[where[3]] == "resumed  at step 1 from its first update; 1 of 2 steps are done"
