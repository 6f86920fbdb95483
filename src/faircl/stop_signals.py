"""Signals that stop training: it leaves at the next update, once that is saved, and otherwise at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from faircl.errors import Interrupted

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name))


class StopSignals:
    """Receives SIGINT, SIGTERM, SIGHUP and SIGUSR1 while a run trains; those that are ignored stay so, as under nohup.

    A signal raises ``Interrupted``. Within ``deferred`` the first one is noted in ``received`` instead.
    """

    def __init__(self, resume_command: str) -> None:
        self.resume_command = resume_command
        self.received = 0
        """Number of the signal that was noted; 0: none."""
        self._deferring = False
        self._before: dict[int, Any] = {}

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Note the first signal, and raise it at the end of the block unless that is left by an exception."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if self.received:
            raise self.interrupted(self.received)

    def interrupted(self, number: int, where: str = "") -> Interrupted:
        """Return the exception for a signal, with a sentence that says how to continue."""
        name = signal.Signals(number).name
        return Interrupted(f"stopped by {name}{where}; continue with: {self.resume_command}", number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._deferring and not self.received:
            self.received = number
        else:
            raise self.interrupted(number, " at once, without saving" if self._deferring else "")

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
            for number in STOPPING:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: set by a library in C
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def renew(self) -> None:
        """Set the handlers again: the compiler of GPU kernels replaces that of SIGUSR1 when it is first used."""
        for number in self._before:
            signal.signal(number, self._handle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._before:
            signal.signal(*self._before.popitem())


def ignore_stop_signals(worker: int = 0) -> None:
    """Ignore the signals in a process that reads images: terminals send them to all processes, and the trainer acts.

    Not SIGTERM, by which the trainer ends such a process itself.
    """
    for number in STOPPING:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
