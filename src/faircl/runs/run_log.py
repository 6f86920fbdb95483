"""The log of a run: train.log in its folder, a line with a time stamp for everything that is said."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import faircl
from faircl.distributed import rank
from faircl.errors import Interrupted, UserError
from faircl.progress import ConsoleReporter, Reporter, Task
from faircl.timed_lines import TimedLines, duration

LOG = "train.log"
PROGRESS_SECONDS = 60.0
"""Seconds from one line about a task to the next."""


class LoggedReporter:
    """Passes everything on to another reporter and writes it to a run's log.

    What is said before the log is opened is kept and written then. A log that cannot be written is no error: the other
    reporter says so once.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self._path: Path | None = None
        self._kept: list[str] = []
        self._complained = self._blind = False

    def say(self, text: str) -> None:
        """Print a text and write it."""
        self.reporter.say(text)
        self._write(text)

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Task]:
        """Show a task; while it lasts its progress is written once per minute."""
        lines = TimedLines(label, total, self._write, PROGRESS_SECONDS, PROGRESS_SECONDS)
        with self.reporter.task(label, total) as task, lines.shown():
            yield _Both(task, lines)

    def open(self, folder: Path) -> None:
        """Begin or continue the log of a run."""
        path = folder / LOG
        begun = "resumed" if path.exists() else "begun"
        kept, self._kept, self._path = self._kept, [], path
        self._append([_stamped(f"{begun} by faircl {faircl.__version__}, process {os.getpid()}"), *kept])

    @contextmanager
    def until_end(self) -> Iterator[None]:
        """Write how the block ended, and after what time."""
        started = time.monotonic()
        how = "finished"
        try:
            yield
        except UserError as error:
            how = f"stopped: {error}"
            raise
        except Interrupted as stop:
            how = str(stop)
            raise
        except BaseException as error:
            how = f"stopped by {type(error).__name__}{f': {error}' if str(error) else ''}"
            raise
        finally:
            self._write(f"{how} (after {duration(time.monotonic() - started)})")

    def _write(self, text: str) -> None:
        self._append([_stamped(line) for line in text.splitlines() if line.strip()])
        problem = self.reporter.problem if isinstance(self.reporter, ConsoleReporter) else ""
        if problem and not self._blind:
            self._blind = True
            self._append([_stamped(f"progress can no longer be shown: {problem}; training goes on")])

    def _append(self, lines: list[str]) -> None:
        if rank() > 0:  # one process writes
            return
        if self._path is None:
            self._kept += lines
            return
        try:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write("".join(line + "\n" for line in lines))
        except OSError as error:
            if not self._complained:
                self._complained = True
                self.reporter.say(f"note: {self._path} cannot be written: {error.strerror}; training goes on")


class _Both:
    """A task that is shown and written."""

    def __init__(self, *tasks: Task) -> None:
        self.tasks = tasks

    def advance(self, note: str = "") -> None:
        for task in self.tasks:
            task.advance(note)


def _stamped(line: str) -> str:
    return f"{datetime.now().astimezone().isoformat(timespec='seconds')} {line}"
