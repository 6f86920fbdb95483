"""Settings of tiny runs, and a reporter that prints nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

TINY = (
    "data.images=24",
    "data.test_images=8",
    "data.size=32",
    "train.epochs=2",
    "train.later_epochs=1",
    "train.batch=8",
    "train.crop=32",
    "train.log_every=1",
    "model.width=8",
    "model.embedding=8",
    "eval.batch=4",
    "eval.examples=2",
)
"""Settings that shrink the recipe 'demo' to about a second."""


class Silent:
    """A reporter that keeps what was said and can raise when a task begins."""

    def __init__(self, stop_at: str = "") -> None:
        self.said: list[str] = []
        self.tasks: list[str] = []
        self.stop_at = stop_at

    def say(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Silent]:
        self.tasks.append(label)
        if label == self.stop_at:
            raise KeyboardInterrupt
        yield self

    def advance(self, note: str = "") -> None:
        pass
