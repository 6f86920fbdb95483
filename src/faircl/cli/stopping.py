"""Training that a signal has stopped: its sentence and the exit code of the signal, whatever typer makes of Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from faircl.errors import Interrupted


class Stopped(Exception):
    """A command was stopped by a signal, in one sentence."""

    def __init__(self, stop: Interrupted) -> None:
        super().__init__(str(stop))
        self.code = 128 + stop.signal
        """The usual exit code of a process that a signal has ended."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise ``Stopped`` instead of ``Interrupted``, a KeyboardInterrupt, which typer catches and replaces."""
    try:
        yield
    except Interrupted as stop:
        raise Stopped(stop) from None
