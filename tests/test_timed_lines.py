"""Progress as lines by time: when they come, what they say, and durations for people."""

import threading
import time

import pytest

from faircl.timed_lines import TimedLines, duration, repeated


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def task(clock):
    return TimedLines("step 1 train", 400, lambda line: None, clock=clock)


def advance(task, clock, times, seconds, note=""):
    for _ in range(times):
        clock.now += seconds
        task.advance(note)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (45, "45 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (86_390, "1 d 00 h"),
        (3 * 86_400 + 4 * 3600, "3 d 04 h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_line_has_units_time_spent_time_left_and_the_note(task, clock):
    advance(task, clock, 100, 2, "loss 0.500")
    assert task.line() == "step 1 train: 100/400 after 3 min 20 s, 10 min 00 s left, loss 0.500"


def test_a_note_stays_until_there_is_another(task, clock):
    advance(task, clock, 1, 5, "loss 0.500")
    advance(task, clock, 1, 5)
    assert task.line().endswith(", loss 0.500")


def test_the_time_of_a_start_is_not_expected_again(task, clock):
    advance(task, clock, 1, 60)  # compiled, say
    assert "1/400 after 1 min 00 s, 6 h 39 min left" in task.line()  # nothing better is known yet
    advance(task, clock, 10, 1)
    assert "11/400 after 1 min 10 s, 6 min 29 s left" in task.line()


def test_units_that_come_together_count_from_the_start(task, clock):
    advance(task, clock, 1, 10)
    advance(task, clock, 3, 0)  # a batch of four
    assert "4/400 after 10 s, 16 min 30 s left" in task.line()


def test_a_standstill_is_said(task, clock):
    clock.now += 40
    assert task.line() == "step 1 train: 0/400 after 40 s"
    advance(task, clock, 12, 1, "loss 0.500")
    clock.now += 29
    assert "no update" not in task.line()
    clock.now += 31
    assert task.line() == "step 1 train: 12/400 after 1 min 52 s, no update for 1 min 00 s, loss 0.500"


def test_a_task_under_two_seconds_is_silent_and_a_longer_one_ends_with_a_line(clock):
    lines = []
    for seconds in (0.15, 0.2):
        with TimedLines("scan", 10, lines.append, clock=clock).shown() as task:
            advance(task, clock, 10, seconds, "loss 0.500")
    assert lines == ["scan: 10/10 in 2 s, loss 0.500"]


def test_a_task_that_fails_has_no_last_line(clock):
    lines = []

    def fail():
        with TimedLines("scan", 10, lines.append, clock=clock).shown():
            clock.now += 5
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lines == []


def test_lines_come_by_themselves_while_nothing_advances(clock):
    lines, second = [], threading.Event()

    def write(line):
        lines.append(line)
        clock.now += 30
        if len(lines) == 2:
            second.set()

    clock.now += 10
    with TimedLines("scan", 10, write, interval=0.01, first=0.01, clock=clock).shown() as task:
        task.interval = 30.0
        task.advance()
        assert second.wait(5)
    assert lines[:2] == ["scan: 1/10 after 0 s, 0 s left", "scan: 1/10 after 30 s, no update for 30 s"]


def test_a_repeated_call_ends_with_its_block():
    calls, before = [], set(threading.enumerate())
    with repeated(lambda: calls.append(time.monotonic()), first=0.05, interval=0.01):
        started = time.monotonic()
        while len(calls) < 3 and time.monotonic() - started < 5:
            time.sleep(0.01)
    count = len(calls)
    assert count >= 3
    assert not set(threading.enumerate()) - before
    time.sleep(0.05)
    assert len(calls) == count
