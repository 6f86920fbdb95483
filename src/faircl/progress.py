"""Progress on standard error: a bar with the time left on a terminal, a line every half minute elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Protocol, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as BarState
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from faircl.standard_error import StandardError
from faircl.timed_lines import TimedLines

WIDE = 100
"""Columns of a terminal that shows the time spent beside the time left."""


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
    """Reporter for the command line; output that cannot be written is dropped, and nothing is raised."""

    def __init__(self, quiet: bool = False) -> None:
        self._stream = StandardError()
        self.console = Console(file=cast(IO[str], self._stream), quiet=quiet, highlight=False)

    @property
    def problem(self) -> str:
        """Why nothing is shown any more, such as "Broken pipe"; empty while all is well."""
        return self._stream.problem

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Task]:
        """Show a bar on a terminal, otherwise a line every half minute."""
        if self.console.quiet:
            yield SilentReporter()
            return
        if not self.console.is_terminal:
            with TimedLines(label, total, self.say).shown() as lines:
                yield lines
            return
        columns = (
            TextColumn("{task.description}"),
            _Bar(self.console),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            *([TimeElapsedColumn(table_column=Column(no_wrap=True))] if self.console.width >= WIDE else []),
            TextColumn("left"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            _Note(),
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


class _Bar(BarColumn):
    """A bar of 30 characters, or of fewer where the terminal has no room for them beside the text."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def render(self, task: BarState) -> ProgressBar:
        count = 2 * len(str(task.total)) + 1
        times = "0:00:00 left 0:00:00 " if self.console.width >= WIDE else "left 0:00:00 "
        text = len(task.description) + count + len(times) + len(task.fields["note"])
        self.bar_width = min(max(self.console.width - text - 3, 5), 30)
        return super().render(task)


class _Note(ProgressColumn):
    """The note, cut where the terminal ends."""

    def render(self, task: BarState) -> Text:
        return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")


class _BarTask:
    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self.progress, self.id = progress, progress.add_task(label, total=total, note="")

    def advance(self, note: str = "") -> None:
        if note:
            self.progress.update(self.id, advance=1, note=note)
        else:
            self.progress.update(self.id, advance=1)
