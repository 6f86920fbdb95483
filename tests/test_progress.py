"""The reporter of the command line: bars on a terminal, lines elsewhere, nothing raised where nothing can be shown."""

import errno
import io
import os
import re
import subprocess
import sys

import pytest

from faircl import timed_lines
from faircl.progress import ConsoleReporter


class Refusing(io.StringIO):
    """A stream that cannot be written."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self.terminal, self.attempts = terminal, 0

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.attempts += 1
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use(reporter):
    reporter.say("hello")
    with reporter.task("scan", 3) as task:
        for _ in range(3):
            task.advance("loss 0.5")


def test_a_short_task_prints_nothing_where_there_is_no_terminal(capsys):
    use(ConsoleReporter())
    assert capsys.readouterr() == ("", "hello\n")


def test_a_task_of_some_time_prints_lines(capsys, monkeypatch):
    monkeypatch.setattr(timed_lines, "SHORT", 0.0)
    use(ConsoleReporter())
    assert capsys.readouterr() == ("", "hello\nscan: 3/3 in 0 s, loss 0.5\n")


def test_a_terminal_shows_a_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    use(ConsoleReporter())
    shown = sys.stderr.getvalue()
    assert all(part in shown for part in ("hello", "scan", "3/3", "loss 0.5"))


@pytest.mark.parametrize(("columns", "spent"), [(60, False), (80, False), (100, True), (140, True)])
def test_a_bar_leaves_room_for_the_time_left(columns, spent, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    with ConsoleReporter().task("step 0 train", 900) as task:
        task.advance("whole run 11 min 20 s left, loss 0.512")
    shown = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sys.stderr.getvalue()))
    last = [line for line in shown if "whole run" in line][-1]
    assert len(last) <= columns
    assert re.match(
        r"step 0 train [━╸╺ ]{5,30} +1/900 " + ("0:00:00 " if spent else "") + "left -:--:-- whole run", last
    )
    assert ("loss 0.512" in last) == (columns >= 80)


def test_a_quiet_reporter_prints_nothing(capsys):
    use(ConsoleReporter(quiet=True))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_closed_pipe_is_remembered_and_not_raised(terminal, monkeypatch):
    stream = Refusing(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(timed_lines, "SHORT", 0.0)
    reporter = ConsoleReporter()
    assert reporter.problem == ""
    use(reporter)
    assert reporter.problem == "Broken pipe"
    assert stream.attempts == 1  # it is not tried again


def test_a_closed_or_missing_stream_is_no_error(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    reporter = ConsoleReporter()
    stream.close()
    use(reporter)
    assert "closed file" in reporter.problem
    monkeypatch.setattr(sys, "stderr", None)
    reporter = ConsoleReporter()
    use(reporter)
    assert reporter.problem == ""


@pytest.mark.parametrize("closed", ["full", "pipe"])
def test_a_process_whose_standard_error_is_refused_ends_well(closed):
    code = "from faircl.progress import ConsoleReporter as C; r = C(); r.say('a'); r.say('b'); print(r.problem)"
    if closed == "full":
        target = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, target = os.pipe()
        os.close(reader)
    try:
        # Only what is buffered can fail once more when Python exits.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        command = [sys.executable, "-c", code]
        found = subprocess.run(command, stdout=subprocess.PIPE, stderr=target, text=True, env=env, timeout=60)
    finally:
        os.close(target)
    expected = "No space left on device" if closed == "full" else "Broken pipe"
    assert (found.returncode, found.stdout) == (0, f"{expected}\n")
