"""TensorBoard: event files in the folder ``tensorboard`` of a run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from faircl.engine.loggers.points import Point
from faircl.engine.loggers.service import Begun, RunInfo, Status

FOLDER = "tensorboard"
FLUSH_SECONDS = 20


class TensorBoardFiles:
    """Writes event files; a resumed run adds one, which voids the events after the update that it continues from."""

    title: ClassVar[str] = "TensorBoard"
    extra: ClassVar[str] = "tensorboard"
    rewinds: ClassVar[bool] = True

    @staticmethod
    def packages() -> tuple[str, ...]:
        """TensorBoard itself; its writer comes with torch."""
        return ("tensorboard",)

    @staticmethod
    def check() -> None:
        """Nothing but its package is needed."""

    def begin(self, run: RunInfo, id: str | None) -> Begun:
        """Open an event file."""
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / FOLDER
        purge = None if id is None else run.done + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=FLUSH_SECONDS)
        return Begun(FOLDER, str(folder))

    def log(self, point: Point) -> None:
        """Write an event per number."""
        for name, value in point.scalars.items():
            self._writer.add_scalar(name, value, point.position.update)

    def end(self, status: Status, report: Path | None) -> None:
        """Close the file: TensorBoard has neither states of runs nor files."""
        self._writer.close()
