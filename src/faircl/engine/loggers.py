"""Records of training: in memory, in metrics.jsonl while a step trains and, optionally, in TensorBoard."""

from __future__ import annotations

from typing import Any

from faircl.errors import UserError
from faircl.runs.folder import RunFolder
from faircl.runs.reading import Record


class TrainLog:
    """Holds all records of a run, and appends those of the step that trains to metrics.jsonl.

    ``write`` is false on all processes but the first.
    """

    def __init__(self, folder: RunFolder, every: int, tensorboard: bool = False, write: bool = True) -> None:
        self.folder, self.every, self.write = folder, every, write
        self.records: list[Record] = []
        self._writer = import_summary_writer()(str(folder.path / "tensorboard")) if tensorboard and write else None

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
        loss = sum(terms.values())
        record = {"kind": "train", "step": step, "iteration": iteration, "iterations": iterations, "lr": lr}
        record |= {"loss": loss, "terms": terms, **({"measures": measures} if measures else {})}
        self.append(record)
        if self._writer is not None:
            prefixed = {f"measures/{name}": value for name, value in (measures or {}).items()}
            for name, value in {"loss": loss, "lr": lr, **terms, **prefixed}.items():
                self._writer.add_scalar(f"step{step}/{name}", value, iteration)

    def append(self, record: Record) -> None:
        """Add a record. Its line in metrics.jsonl is for readers: a checkpoint writes the file anew."""
        self.records.append(record)
        if self.write:
            self.folder.append_record(record)

    def close(self) -> None:
        """Flush and close the TensorBoard writer."""
        if self._writer is not None:
            self._writer.close()


def import_summary_writer() -> Any:
    """Return TensorBoard's SummaryWriter class; raise a UserError if TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "train.tensorboard needs TensorBoard; install it with: pip install 'faircl[logging]'."
        ) from None
    return SummaryWriter
