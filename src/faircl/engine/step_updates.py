"""The updates of one step: its optimiser, schedule and batches, from the first update or from a checkpoint."""

from __future__ import annotations

import time

import torch
from lightning_fabric import Fabric

from faircl.distributed import rank
from faircl.engine.in_step_state import capture, continue_generators, load_optimizer
from faircl.engine.network import set_training_mode
from faircl.engine.optim import make_optimizer, make_schedule
from faircl.engine.plan import Plan
from faircl.engine.runtime import use_fused_optimizer
from faircl.engine.step_inputs import step_batches, step_iterations
from faircl.engine.update import Update, Updater
from faircl.loading.inputs import StepInputs
from faircl.methods.base import Method, StepContext
from faircl.models.segmenter import Segmenter
from faircl.runs.in_step import InStepState, ValidationState
from faircl.seeding import torch_seed


class StepUpdates:
    """Runs the updates of a step that the method has begun.

    ``done`` updates are behind, of ``iterations``; ``seconds`` is their time, without that of an interruption.
    """

    def __init__(
        self,
        plan: Plan,
        context: StepContext,
        method: Method,
        fabric: Fabric,
        inputs: StepInputs,
        teacher: Segmenter | None,
        resumed: InStepState | None,
    ) -> None:
        self.context, self.method, self.fabric = context, method, fabric
        config, step, model = plan.config, context.step, context.model
        self.iterations, self.done = step_iterations(plan, step), resumed.iteration if resumed else 0
        rank_key = (rank(),) if rank() > 0 else ()
        torch.manual_seed(torch_seed(config.seed, "train", context.seed_step, *rank_key))  # for dropout
        self.optimizer = make_optimizer(config.optim, model, step, fused=use_fused_optimizer(config.train, fabric))
        if resumed is not None:
            load_optimizer(self.optimizer, fabric, resumed)
        network, optimizer = fabric.setup(model, self.optimizer)
        set_training_mode(model, config, step)
        schedule = make_schedule(config.optim, optimizer, self.iterations, self.done)
        self.updater = Updater(fabric, method, network, optimizer, schedule, config.optim, teacher)
        self.batches = step_batches(plan, context, method, inputs, self.done)
        if resumed is not None:
            self.batches = continue_generators(self.batches, resumed, fabric.device)
        self._seconds_before = resumed.seconds if resumed else 0.0
        self.start_clock()

    def start_clock(self) -> None:
        """Count the seconds of training from now on."""
        self._started = time.monotonic() - self._seconds_before

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return time.monotonic() - self._started

    def update(self, measure: bool) -> Update:
        """Run the next update; ``measure`` also computes the method's measures."""
        self.done += 1
        return self.updater.update(self.batches, self.context.step, self.done, measure)

    def state(self, validation: ValidationState) -> InStepState:
        """Return the state after the updates that are done; all processes call it."""
        return capture(self.context, self.done, self.method, self.optimizer, self.fabric, validation, self.seconds)
