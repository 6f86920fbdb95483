"""When a checkpoint within a step is taken: by the clock, at a signal, and before the step's evaluation."""

from __future__ import annotations

import time
from functools import partial

from faircl.distributed import global_max, on_rank_zero, rank
from faircl.runs.folder import RunFolder
from faircl.runs.in_step import InStepState, save_in_step
from faircl.stop_signals import StopSignals

WORTH_SAVING = 30.0
"""Seconds of training after which a checkpoint is also taken before the step's evaluation, which may take long."""


class InStepCheckpoints:
    """Takes the checkpoints of a run: every ``minutes``, and before a signal ends it."""

    def __init__(self, folder: RunFolder, minutes: float, signals: StopSignals) -> None:
        self.folder, self.seconds, self.signals = folder, 60 * minutes, signals
        self.stop = 0
        """Number of the signal by which a process was told to stop; 0: none."""
        self.restart_clock()

    def restart_clock(self) -> None:
        """Count the time from now on."""
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether a checkpoint is due, by the clock of the first process or because one was told to stop."""
        self.signals.renew()
        late = rank() == 0 and time.monotonic() - self._last >= self.seconds
        self.stop, late_anywhere = global_max(self.signals.received, int(late))
        return bool(self.stop or late_anywhere)

    def worth_saving(self) -> bool:
        """Whether the training time since the last checkpoint is worth one before the step is evaluated."""
        late = time.monotonic() - self._last >= min(WORTH_SAVING, self.seconds)
        return bool(global_max(int(rank() == 0 and late))[0])

    def save(self, state: InStepState, iterations: int) -> None:
        """Write a checkpoint; raise ``Interrupted`` if a process was told to stop."""
        on_rank_zero(partial(save_in_step, self.folder.checkpoints, state))
        self.restart_clock()
        if self.stop:
            where = f" at step {state.step} after update {state.iteration} of {iterations}, which is saved"
            raise self.signals.interrupted(self.stop, where)
