"""Data loader workers that do not answer: training waits for them, so it says for which."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from faircl.progress import Reporter
from faircl.timed_lines import duration, repeated

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds without a batch after which it is said that none comes."""


def say_if_stalled(loader: Iterable[T], reporter: Reporter, patience: float = PATIENCE) -> Iterator[T]:
    """Yield the items of a data loader; say so, once per item, if its workers keep it waiting.

    The workers end with this generator, also where it is left early. An iterator that an error's traceback keeps would
    be collected as garbage, together with the queues by which it tells its workers to end, and waits five seconds for
    each of them.
    """
    items = iter(loader)  # starts the workers
    workers = [worker.pid for worker in getattr(items, "_workers", ())]
    if not workers:
        yield from items
        return
    wait = _Wait(workers, reporter, patience)
    try:
        with repeated(wait.check, patience / 6, patience / 6):
            wait.begin()
            for item in items:
                wait.end()
                yield item
                wait.begin()
    finally:
        items._shutdown_workers()  # type: ignore[attr-defined]


class _Wait:
    """The wait for one item, watched from another thread."""

    def __init__(self, workers: Sequence[int], reporter: Reporter, patience: float) -> None:
        self.workers, self.reporter, self.patience = workers, reporter, patience
        self.since: float | None = None

    def begin(self) -> None:
        self.since = time.monotonic()

    def end(self) -> None:
        self.since = None

    def check(self) -> None:
        since = self.since
        if since is not None and time.monotonic() - since >= self.patience:
            self.since = None  # once is enough
            self.reporter.say(stall_message(self.workers, time.monotonic() - since))


def stall_message(workers: Sequence[int], seconds: float) -> str:
    """Return what to say if no image has come from these processes for some seconds."""
    text = f"warning: no image has come for {duration(seconds)} from the processes that read images"
    stopped = [str(pid) for pid in workers if _state(pid) in ("T", "t")]
    if not stopped:
        return f"{text} ({', '.join(map(str, workers))}); training waits for them: is the disk slow or gone?"
    some = "Process" if len(stopped) == 1 else "Processes"
    return (
        f"{text}. {some} {', '.join(stopped)} {'is' if len(stopped) == 1 else 'are'} stopped; continue with: "
        f"kill -CONT {' '.join(stopped)}"
    )


def _state(pid: int) -> str:
    """Return the letter of a process's state, T if it is stopped; empty where there is no /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
