"""Weights & Biases: a run online, or offline in the folder ``wandb`` of a run. WANDB_* variables have their meaning."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from faircl.engine.loggers.points import KINDS, Point
from faircl.engine.loggers.service import Begun, RunInfo, Status
from faircl.errors import UserError

PROJECT = "faircl"
UPDATE, STEP = "update", "step"
"""Keys of every row: updates since the run began, which is the horizontal axis, and the step."""
INIT_SECONDS, FINISH_SECONDS = 30.0, 120.0
"""Seconds that training waits for the server at its beginning, and for uploads at its end."""
_EXIT_CODES: dict[Status, int] = {"finished": 0, "failed": 1, "interrupted": 255}


class WandbRun:
    """A run of Weights & Biases; standard output is left alone."""

    title: ClassVar[str] = "Weights & Biases"
    extra: ClassVar[str] = "wandb"
    rewinds: ClassVar[bool] = False

    @staticmethod
    def packages() -> tuple[str, ...]:
        """Weights & Biases itself."""
        return ("wandb",)

    @staticmethod
    def check() -> None:
        """Raise a UserError if runs go online and nobody is logged in: wandb would ask on the terminal."""
        import wandb

        if wandb.run is not None or wandb.setup().settings.mode != "online":
            return
        try:
            with _no_questions():
                wandb.login()
        except wandb.errors.UsageError:
            raise UserError(
                "train.loggers names wandb, but nobody is logged in; run 'wandb login', or set WANDB_MODE=offline to "
                "keep the run on this machine."
            ) from None
        except wandb.errors.Error:
            return  # no network, perhaps: that is no reason not to train

    def begin(self, run: RunInfo, id: str | None) -> Begun:
        """Open a run, or continue one; offline a continued run has a folder of its own with the same id."""
        import wandb

        id = id or os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
        own = {"WANDB_DIR": ("root_dir", str(run.folder)), "WANDB_INIT_TIMEOUT": ("init_timeout", INIT_SECONDS)}
        given: dict[str, Any] = dict(setting for name, setting in own.items() if not os.environ.get(name))
        settings = wandb.Settings(
            silent=True,
            console="off",
            symlink=False,  # a run folder may be copied and moved
            finish_timeout=FINISH_SECONDS,
            finish_timeout_raises=True,
            **given,
        )
        with _no_questions():
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or PROJECT,
                name=os.environ.get("WANDB_NAME") or run.title,
                id=id,
                resume="allow",
                config={**run.settings, "run_folder": str(run.folder.resolve())},
                allow_val_change=True,
                reinit="create_new",
                settings=settings,
            )
        self._run.define_metric("*", step_metric=UPDATE)
        settings = self._run.settings
        where = settings.sync_dir if settings.mode == "offline" else self._run.url
        return Begun(id, str(where or settings.mode))

    def log(self, point: Point) -> None:
        """Log one row; its number grows with its place in the run, also over a run's continuations."""
        update, order = point.position
        number = len(KINDS) * update + order
        self._run.log({**point.scalars, UPDATE: update, STEP: point.step}, step=number, commit=True)

    def end(self, status: Status, report: Path | None) -> None:
        """Keep the report page as an artifact and finish the run."""
        try:
            if report is not None:
                self._run.log_artifact(report, name=f"report-{self._run.id}", type="report")
        finally:
            self._run.finish(exit_code=_EXIT_CODES[status])


@contextmanager
def _no_questions() -> Iterator[None]:
    """Take the terminal from standard input, so that wandb raises an error where it would ask for a login."""
    before = sys.stdin
    with open(os.devnull, encoding="utf-8") as sys.stdin:
        try:
            yield
        finally:
            sys.stdin = before
