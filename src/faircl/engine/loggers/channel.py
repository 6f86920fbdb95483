"""The way of points to one service: none twice, and no failure of the service reaches training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from faircl.engine.loggers.points import BEFORE_ALL, Point, Position
from faircl.engine.loggers.service import RunInfo, Service, Status
from faircl.engine.loggers.states import State, States
from faircl.progress import Reporter


class Channel:
    """Sends points to a service until it fails for the first time, which is noted once."""

    def __init__(self, name: str, service: Service, states: States, reporter: Reporter) -> None:
        self.name, self.service, self.states, self.reporter = name, service, states, reporter
        self._open = self._begun = False
        self._sent = BEFORE_ALL

    def begin(self, run: RunInfo, kept: Sequence[Point], last: Position) -> None:
        """Open the service and send what it lacks of the points that a resumed run has ``kept``.

        ``last`` is the place of the last record before the run was resumed. Records may lie between the kept ones and
        this place: training computes them again, and only a service that rewinds gets them again.
        """
        state = self.states.get(self.name)
        if state is not None:
            self._sent = last if state.sent is None else state.sent
            if self.service.rewinds:
                self._sent = min(self._sent, kept[-1].position if kept else BEFORE_ALL)
        self._open = True

        def open_run() -> None:
            begun = self.service.begin(run, None if state is None else state.id)
            self._begun = True
            self.states.set(self.name, State(begun.id))
            self.reporter.say(f"logging to {self.service.title}: {begun.where}")

        self._guard(open_run)
        for point in kept:
            self.send(point)

    def send(self, point: Point) -> None:
        """Send a point, unless the service has it."""
        if self._open and point.position > self._sent:
            self._guard(lambda: self.service.log(point))
            if self._open:
                self._sent = point.position

    def end(self, status: Status, report: Path | None) -> None:
        """Close the service; one that has failed may still learn how training ended."""
        if self._open:
            self._guard(lambda: self.service.end(status, report))
        elif self._begun:
            with suppress(Exception):
                self.service.end(status, None)
        self._open = self._begun = False

    def _guard(self, call: Callable[[], None]) -> None:
        """Call the service; if it fails, say so, and call it no more."""
        try:
            call()
        except Exception as error:
            self._open = False
            state = self.states.get(self.name)
            if state is not None:
                self.states.set(self.name, State(state.id, self._sent))
            self.reporter.say(
                f"note: {self.service.title} failed: {_sentence(error)}; training goes on without it, and "
                "metrics.jsonl has all records"
            )


def _sentence(error: Exception, most: int = 300) -> str:
    """Return an error's text in one line, shortened where it is long."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= most else f"{text[:most]}…"
