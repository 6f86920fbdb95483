"""The expected time of a whole run, from the updates and pauses between steps seen so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from faircl.timed_lines import duration

ENOUGH_UPDATES = 5
"""Updates of a step that are timed before they say what the others will take."""


class RunClock:
    """Seconds that are left of a run, measured by this process alone.

    Left are the updates of this step and of all later ones, and as many pauses as steps. A pause is the time from the
    last update of a step to the first of the next: evaluation, saving, preparation. Before the first pause none is
    counted. Every update is expected to take as long as those of the latest step that has enough of them; the first
    one of a step, which may compile or start workers, is left out.

    ``updates`` has the number of updates of every step, finished ones included.
    """

    def __init__(self, updates: Sequence[int], clock: Callable[[], float] = time.monotonic) -> None:
        self.updates, self.clock = updates, clock
        self._step = -1
        self._first = self._last = (0, 0.0)
        self._seconds_per_update: float | None = None
        self._pauses: list[float] = []
        self._estimated = False

    def tick(self, step: int, iteration: int) -> None:
        """Count an update as done: the ``iteration``-th of its step, from 1."""
        now = self.clock()
        if step != self._step:
            if self._step >= 0:
                self._pauses.append(now - self._last[1])
            self._step, self._first = step, (iteration, now)
        self._last = iteration, now
        timed = iteration - self._first[0]
        if timed >= ENOUGH_UPDATES:
            self._seconds_per_update = (now - self._first[1]) / timed

    def seconds_left(self) -> float | None:
        """Return the seconds left of the run; None before enough updates, and where they are those of this step."""
        later = sum(self.updates[self._step + 1 :])
        if self._seconds_per_update is None or (later == 0 and not self._pauses):
            return None
        own = self.updates[self._step] - self._last[0]
        pauses = len(self.updates) - self._step
        pause = sum(self._pauses) / len(self._pauses) if self._pauses else 0.0
        return (own + later) * self._seconds_per_update + pauses * pause

    def first_estimate(self) -> str | None:
        """Return the time that all updates left will take, once it is known; None at every other call."""
        if self._estimated or self._seconds_per_update is None:
            return None
        self._estimated = True
        updates = sum(self.updates[self._step :]) - self._last[0]
        return f"about {duration(updates * self._seconds_per_update)} for the {updates:,} updates left"

    def note(self, step: int, iteration: int, loss: float) -> str:
        """Count an update and return the note beside its progress: "whole run about 11 min 00 s left, loss 0.512"."""
        self.tick(step, iteration)
        left = self.seconds_left()
        # Before the first pause its length is not known.
        about = "about" if self._pauses else "at least"
        return ("" if left is None else f"whole run {about} {duration(left)} left, ") + f"loss {loss:.3f}"
