"""Training records for metrics.jsonl and, optionally, TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faircl.errors import UserError


class TrainLog:
    """Collects the training records of a run."""

    def __init__(self, folder: Path, every: int, tensorboard: bool) -> None:
        self.every = every
        self.records: list[dict[str, Any]] = []
        self._writer = import_summary_writer()(str(folder / "tensorboard")) if tensorboard else None

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
        self.records.append({**record, "loss": loss, "terms": terms, **({"measures": measures} if measures else {})})
        if self._writer is not None:
            prefixed = {f"measures/{name}": value for name, value in (measures or {}).items()}
            for name, value in {"loss": loss, "lr": lr, **terms, **prefixed}.items():
                self._writer.add_scalar(f"step{step}/{name}", value, iteration)

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
