"""Progress as lines of text at fixed times: for log files, and for output that is not a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERVAL = 30.0
"""Seconds from one line of a task to the next."""
FIRST = 10.0
"""Seconds from the start of a task to its first line."""
SHORT = 2.0
"""A task of fewer seconds has no line at all."""


def duration(seconds: float) -> str:
    """Return a duration as people write it: "45 s", "3 min 20 s", "2 h 05 min", "3 d 04 h"."""
    total, minutes, hours = (round(seconds / unit) for unit in (1, 60, 3600))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


@contextmanager
def repeated(call: Callable[[], None], first: float, interval: float) -> Iterator[None]:
    """Call a function in a thread of its own, after ``first`` seconds and then every ``interval`` seconds."""
    ended = threading.Event()

    def repeat() -> None:
        wait = first
        while not ended.wait(wait):
            call()
            wait = interval

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class TimedLines:
    """A task whose progress is written as a line every ``interval`` seconds, also while nothing advances.

    ``write`` is called from another thread. A task of two seconds or more has a line at its end.
    """

    def __init__(
        self,
        label: str,
        total: int,
        write: Callable[[str], None],
        interval: float = INTERVAL,
        first: float = FIRST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label, self.total, self.write = label, total, write
        self.interval, self.first, self.clock = interval, first, clock
        self.done, self.note = 0, ""
        self.started = self.first_advance = self.last_advance = clock()

    def advance(self, note: str = "") -> None:
        """Count one unit as done."""
        self.last_advance = self.clock()
        if self.done == 0:
            self.first_advance = self.last_advance
        self.note = note or self.note
        self.done += 1

    @contextmanager
    def shown(self) -> Iterator[TimedLines]:
        """Write lines until the block ends."""
        with repeated(lambda: self.write(self.line()), self.first, self.interval):
            yield self
        seconds = self.clock() - self.started
        if seconds >= SHORT:
            self.write(self._joined(f"in {duration(seconds)}"))

    def line(self) -> str:
        """Return the progress now."""
        now = self.clock()
        parts = [f"after {duration(now - self.started)}"]
        if self.done and now - self.last_advance >= self.interval:
            parts.append(f"no update for {duration(now - self.last_advance)}")
        elif self.done:
            parts.append(f"{duration(self._seconds_per_unit() * (self.total - self.done))} left")
        return self._joined(*parts)

    def _seconds_per_unit(self) -> float:
        """Return the mean over the units after the first one, which may have waited for a start."""
        measured = self.last_advance - self.first_advance
        if self.done > 1 and measured >= 1:
            return measured / (self.done - 1)
        return (self.last_advance - self.started) / self.done

    def _joined(self, time_spent: str, *parts: str) -> str:
        return ", ".join([f"{self.label}: {self.done}/{self.total} {time_spent}", *parts, *filter(None, [self.note])])
