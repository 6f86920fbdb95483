"""Scores on validation images while a step trains: which weights its training ends with, and whether it ends early."""

from __future__ import annotations

import math

import torch

from faircl.distributed import shared_buffers
from faircl.engine.evaluate import evaluate
from faircl.engine.loggers.train_log import TrainLog
from faircl.engine.plan import Plan
from faircl.engine.step_inputs import updates_per_epoch
from faircl.methods.base import Method
from faircl.methods.state import MethodState, load_method_state, method_state
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.runs.in_step import Best, ValidationState
from faircl.scenario import CONVENTIONS
from faircl.tables import show


class StepValidation:
    """Validates a step every ``train.validate_every`` epochs and after its last update.

    The score is the mean IoU over all classes learned so far, by the network as training has left it. With
    ``train.keep: best`` the weights and the method's state with the best score are kept, in memory and in checkpoints,
    until training ends; the method's ``end_step`` then begins from them, and may change them (``method.average``, EWF).
    The network that a step saves, and its evaluation, are those after ``end_step``: where it changes weights, no
    validation has scored them.

    Without validation images nothing is done, nor with ``eval.images: validation`` and nothing to choose: then the
    evaluation of the step is the validation.
    """

    def __init__(
        self,
        plan: Plan,
        step: int,
        iterations: int,
        model: Segmenter,
        method: Method,
        log: TrainLog,
        reporter: Reporter,
        resumed: ValidationState | None = None,
    ) -> None:
        self.plan, self.step, self.iterations = plan, step, iterations
        self.model, self.method, self.log, self.reporter = model, method, log, reporter
        self.config = plan.config.train
        self.state = resumed or ValidationState()
        self.every = max(round(self.config.validate_every * updates_per_epoch(plan, step)), 1)

    def due(self, iteration: int) -> bool:
        """Whether the step is validated after this update."""
        if self.plan.validation is None:
            return False
        if self.config.validate_every == 0:
            return iteration == self.iterations and self.plan.config.eval.images != "validation"
        return iteration == self.iterations or iteration % self.every == 0

    @property
    def ended(self) -> bool:
        """Whether ``train.patience`` validations in a row were not better than the best one."""
        return 0 < self.config.patience <= self.state.stale

    def validate(self, iteration: int) -> None:
        """Evaluate the network as ``end_step`` would get it now; record and report the scores."""
        assert self.plan.validation is not None
        devices = [self.model.mean.device] if self.model.mean.is_cuda else []
        # A data loader draws from the generators that training uses.
        with torch.random.fork_rng(devices), shared_buffers(self.model):
            metrics, _ = evaluate(
                self.model,
                self.plan.data,
                self.plan.validation.split,
                self.plan.validation.scenario,
                self.step,
                convention=CONVENTIONS[self.plan.config.eval.convention],
                size=self.plan.config.eval.size,
                batch=self.plan.config.eval.batch,
                workers=self.config.workers,
                reporter=self.reporter,
                label=f"step {self.step} validate",
                kind="validation",
            )
        at = {"kind": "validation", "step": self.step, "iteration": iteration, "iterations": self.iterations}
        self.log.append(metrics.to_json() | at)
        score, where = metrics.groups["all"].miou, f"step {self.step} validation after update {iteration}"
        if not math.isfinite(score):
            self.reporter.say(f"{where}: no validation image shows a class learned so far")
            return
        better = score > self.state.score
        if better:
            best = Best(_copied(self.model.state_dict()), _copied_state(self.method)) if self._keeps_best else None
            self.state = ValidationState(score, iteration, 0, best)
        else:
            self.state = self.state._replace(stale=self.state.stale + 1)
        shown = {name: metrics.groups[name].miou for name in ("old", "new", "all")}
        means = [f"{name} {show(value, 1)}" for name, value in shown.items() if math.isfinite(value)]
        note = "best so far" if better else f"best {self.state.score:.1f} at update {self.state.iteration}"
        self.reporter.say(f"{where}: {', '.join(means)} ({note})")
        if self.ended:
            count = f"{self.state.stale} validations" if self.state.stale > 1 else "one validation"
            self.reporter.say(f"step {self.step} ends after update {iteration}: {count} without a better one")

    def restore_best(self, iteration: int) -> None:
        """Load the best weights for ``end_step`` to begin from, where they are kept and not those of now."""
        best = self.state.best
        if best is None or self.state.iteration == iteration:
            return
        self.model.load_state_dict(best.model)
        load_method_state(self.method, best.method)
        self.method.to(self.model.mean.device)
        self.reporter.say(f"step {self.step} keeps the weights after update {self.state.iteration}")

    @property
    def _keeps_best(self) -> bool:
        return self.config.keep == "best"


def _copied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return copies on the CPU."""
    return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}


def _copied_state(method: Method) -> MethodState:
    tensors, numbers = method_state(method)
    return MethodState(_copied(tensors), numbers)
