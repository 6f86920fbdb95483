"""The records of a run while it trains: in memory, in metrics.jsonl, and in the services that the settings name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from faircl.config.run import RunConfig
from faircl.distributed import on_rank_zero
from faircl.engine.loggers.publishing import Publishing
from faircl.engine.loggers.service import RunInfo
from faircl.progress import Reporter
from faircl.runs.folder import RunFolder
from faircl.runs.reading import METRICS, Record


class TrainLog:
    """Holds all records of a run, and appends those of the step that trains to metrics.jsonl.

    ``write`` is false on all processes but the first.
    """

    def __init__(self, folder: RunFolder, every: int, write: bool = True) -> None:
        self.folder, self.every, self.write = folder, every, write
        self.records: list[Record] = []
        self._last: Record | None = None
        self._publishing: Publishing | None = None

    def take_up(self, step: int, done: int) -> None:
        """Read the records up to update ``done`` of a step, from which a run continues; drop all others."""
        self.records, self._last = on_rank_zero(partial(_take_up, self.folder, step, done))

    @contextmanager
    def published(self, config: RunConfig, updates: Sequence[int], done: int, reporter: Reporter) -> Iterator[None]:
        """Send the records of the block to the services of ``train.loggers``, from the first process.

        ``updates`` has the number of updates of every step, ``done`` how many of all these were made before.
        """
        if not self.write:
            yield
            return
        run = RunInfo(self.folder.path, config.model_dump(mode="json"), done)
        self._publishing = Publishing(config.train.loggers, run, updates, reporter)
        with self._publishing.opened(self.records, self._last):
            yield

    def due(self, iteration: int, iterations: int) -> bool:
        """Whether an iteration, counted from 1, is recorded: every ``every``-th and the last."""
        return iteration % self.every == 0 or iteration == iterations

    def add(
        self,
        step: int,
        iteration: int,
        iterations: int,
        lr: float,
        terms: dict[str, float],
        measures: dict[str, float] | None = None,
    ) -> None:
        """Record an iteration: learning rate, loss (the sum of its terms), terms, and the method's measures if any."""
        record = {"kind": "train", "step": step, "iteration": iteration, "iterations": iterations, "lr": lr}
        record |= {"loss": sum(terms.values()), "terms": terms, **({"measures": measures} if measures else {})}
        self.append(record)

    def append(self, record: Record) -> None:
        """Add a record. Its line in metrics.jsonl is for readers: a checkpoint writes the file anew."""
        self.records.append(record)
        if self.write:
            self.folder.append_record(record)
        self.publish(record)

    def publish(self, record: Record) -> None:
        """Send a record to the services."""
        if self._publishing is not None:
            self._publishing.send(record)


def _take_up(folder: RunFolder, step: int, done: int) -> tuple[list[Record], Record | None]:
    """Return the records before a step and those within it up to update ``done``, and the last record of all.

    Later steps, which are there if several were damaged, go first: saved steps without an evaluation are an error.
    """
    found = folder.records()
    kept = [r for r in found if r["step"] < step or (r["step"] == step and r.get("iteration", done + 1) <= done)]
    folder.remove_steps_after(step)
    if (folder.path / METRICS).is_file():  # also if all are kept: a killed process may have left part of a line
        folder.write_records(kept)
    return kept, found[-1] if found else None
