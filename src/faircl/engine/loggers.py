"""Records of training, for metrics.jsonl and, on request, TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faircl.errors import UserError


class TrainLog:
    """Collects the records of a run's training steps."""

    def __init__(self, folder: Path, every: int, tensorboard: bool) -> None:
        self.every = every
        self.records: list[dict[str, Any]] = []
        self._board = import_summary_writer()(str(folder / "tensorboard")) if tensorboard else None

    def due(self, iteration: int, iterations: int) -> bool:
        """Whether an iteration (from 1) is recorded: every so many, and the last."""
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
        """Record an iteration: the loss and its terms and, where there are any, what was measured beside them."""
        loss = sum(terms.values())
        record = {"kind": "train", "step": step, "iteration": iteration, "iterations": iterations, "lr": lr}
        self.records.append({**record, "loss": loss, "terms": terms, **({"measures": measures} if measures else {})})
        if self._board is not None:
            beside = {f"measures/{name}": value for name, value in (measures or {}).items()}
            for name, value in {"loss": loss, "lr": lr, **terms, **beside}.items():
                self._board.add_scalar(f"step{step}/{name}", value, iteration)

    def close(self) -> None:
        """Flush what is buffered."""
        if self._board is not None:
            self._board.close()


def import_summary_writer() -> Any:
    """Return TensorBoard's writer class, or say how to install it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "train.tensorboard needs TensorBoard; install it with: pip install 'faircl[logging]'."
        ) from None
    return SummaryWriter
