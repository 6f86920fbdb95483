"""Progress on standard error: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Task(Protocol):
    """A task in progress."""

    def advance(self, note: str = "") -> None:
        """Count one unit as done; the note is shown beside the progress."""
        ...


class Reporter(Protocol):
    """Receiver of messages and progress."""

    def say(self, text: str) -> None:
        """Print a line."""
        ...

    def task(self, label: str, total: int) -> AbstractContextManager[Task]:
        """Open a task of ``total`` units."""
        ...


class ConsoleReporter:
    """Reporter for the command line."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Task]:
        """Show a bar on a terminal, otherwise a line at every tenth."""
        if not self.console.is_terminal or self.console.quiet:
            yield _LineTask(self, label, total)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console) as progress:
            yield _BarTask(progress, label, total)


class SilentReporter:
    """Reporter and task without output."""

    def say(self, text: str) -> None:
        """Print nothing."""

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Task]:
        """Show nothing."""
        yield self

    def advance(self, note: str = "") -> None:
        """Count nothing."""


class _BarTask:
    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self.progress, self.id = progress, progress.add_task(label, total=total, note="")

    def advance(self, note: str = "") -> None:
        if note:
            self.progress.update(self.id, advance=1, note=note)
        else:
            self.progress.update(self.id, advance=1)


class _LineTask:
    """Progress as a line at every tenth; none within the first two seconds."""

    def __init__(self, reporter: ConsoleReporter, label: str, total: int) -> None:
        self.reporter, self.label, self.total = reporter, label, total
        self.done, self.tenth, self.start, self.note = 0, 0, time.monotonic(), ""

    def advance(self, note: str = "") -> None:
        self.done += 1
        self.note = note or self.note
        tenth = 10 * self.done // max(self.total, 1)
        seconds = time.monotonic() - self.start
        if tenth > self.tenth and seconds > 2:
            left = seconds / self.done * (self.total - self.done)
            self.reporter.say(f"{self.label}: {self.done}/{self.total}, {left:.0f} s left {self.note}".rstrip())
        self.tenth = tenth
