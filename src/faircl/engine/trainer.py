"""The step loop: train a step, evaluate it, save it."""

from __future__ import annotations

import copy
import gc
import shlex
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lightning_fabric import Fabric

from faircl.acceleration import accelerated
from faircl.config.prepared import open_data
from faircl.config.run import RunConfig
from faircl.data.sample import SegmentationData
from faircl.distributed import broadcast_buffers, init_process_group, on_rank_zero, rank
from faircl.engine.class_table import class_table
from faircl.engine.data_record import unchanged_data
from faircl.engine.gallery import write_gallery
from faircl.engine.header import header
from faircl.engine.in_step_checkpoints import InStepCheckpoints
from faircl.engine.in_step_state import begin_again
from faircl.engine.loggers.services import check_services
from faircl.engine.loggers.train_log import TrainLog
from faircl.engine.make_method import check_balance_used, make_method
from faircl.engine.network import (
    build_model,
    check_network,
    convert_sync_batch_norm,
    has_unsynchronised_batch_norm,
    move_to_device,
    use_sync_batch_norm,
)
from faircl.engine.plan import Plan, check_auxiliary_maps, make_plan
from faircl.engine.run_clock import RunClock
from faircl.engine.runtime import (
    cudnn_benchmark,
    explain_out_of_memory,
    make_fabric,
    process_settings,
    rank_zero_reporter,
    smallest_local_batch,
)
from faircl.engine.soft_memory import check_soft_memory
from faircl.engine.step_inputs import step_context, step_iterations
from faircl.engine.step_results import check_finite, evaluate_step, write_results, write_step
from faircl.engine.step_updates import StepUpdates
from faircl.engine.step_validation import StepValidation
from faircl.engine.update import Update, delay_by_one
from faircl.loading.inputs import StepInputs, check_inputs
from faircl.methods.base import Method, StepContext
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.runs.checkpoint import load_step
from faircl.runs.environment import environment
from faircl.runs.folder import RunFolder
from faircl.runs.in_step import InStepState, load_in_step
from faircl.runs.lock import RunLock
from faircl.runs.resume_point import ResumePoint, find_resume_point
from faircl.runs.room import check_room, check_writable
from faircl.runs.run_log import LoggedReporter
from faircl.stop_signals import StopSignals

LOCAL_BATCH_NORM = (
    "note: BatchNorm sees each process's share of a batch alone, so this run depends on the number of processes; use "
    "several GPUs with train.sync_norm, train.frozen_norm, or a network without BatchNorm"
)


def train(
    config: RunConfig,
    out: Path,
    reporter: Reporter,
    resume: bool = False,
    data: SegmentationData | None = None,
    plan: Plan | None = None,
    resume_command: str = "",
) -> RunFolder:
    """Train all steps of a configuration into a folder; ``resume`` continues where the run stopped.

    ``data`` is the data set of the configuration, where it has been opened before; ``plan`` the whole plan, where it
    does not follow from configuration and data; ``resume_command`` what continues the run, if not 'faircl train'.

    Under torchrun every process makes the same call. The result equals that of a single process, except for dropout
    and for BatchNorm without synchronised statistics.
    """
    init_process_group()
    reporter = log = LoggedReporter(rank_zero_reporter(reporter))
    config = config.model_copy(update={"data": config.data.absolute()})  # --resume works from any directory
    with RunLock(out) as lock, process_settings(config.train):
        start = on_rank_zero(partial(_resume_point, lock, config, resume))
        fabric = make_fabric(config.train)
        if data is None:
            data = open_data(config) if plan is None else plan.data
        check_inputs(config.train, data)
        model, cells = _checked_network(config, fabric, pretrained=start.step == 0 and start.checkpoint is None)
        on_rank_zero(partial(check_services, config.train.loggers))
        plan = plan or make_plan(config, data, reporter)
        method = make_method(config, model)
        on_rank_zero(partial(check_auxiliary_maps, plan, method.needs.auxiliary_map))
        on_rank_zero(partial(check_soft_memory, plan, method, cells, start.step))
        # Data and settings have been checked; nothing is written before this line.
        folder = on_rank_zero(partial(_claim, lock, plan, model, resume, reporter))
        log.open(folder.path)
        with log.until_end(), explain_out_of_memory():
            Trainer(plan, model, method, folder, fabric, reporter, resume_command).run(start)
    return folder


def _resume_point(lock: RunLock, config: RunConfig, resume: bool) -> ResumePoint:
    """Return where a run continues; raise a UserError if its folder cannot be used, or is in use."""
    folder = RunFolder(lock.folder)
    folder.check_free(config, resume)
    if not folder.begun():
        return ResumePoint()
    lock.acquire()
    return find_resume_point(folder)


def _claim(lock: RunLock, plan: Plan, model: Segmenter, resume: bool, reporter: Reporter) -> RunFolder:
    """Make the run folder, or take it up again, and check that there is room for what the run will write."""
    digests = unchanged_data(lock.folder, plan, reporter)
    size = sum(value.nbytes for value in model.state_dict().values())
    moments = 2 if plan.config.optim.name == "adamw" else 1
    copies = 1 + moments + (plan.config.train.keep == "best")
    left = len(plan.scenario.steps) - RunFolder(lock.folder).finished_steps()
    check_room(RunFolder(lock.folder), size, copies * size, left)
    folder = RunFolder.claim(lock, plan.config, plan.scenario, environment(), resume, digests)
    if left:
        check_writable(folder)
    return folder


def _checked_network(config: RunConfig, fabric: Fabric, pretrained: bool) -> tuple[Segmenter, int]:
    """Build the network and check that it can train on the configured batches; return it and the cells of a window."""
    model = build_model(config, pretrained)
    synchronise, local_batch = use_sync_batch_norm(config.train, fabric.device), smallest_local_batch(config.train)
    cells = check_network(config, model, config.train.batch if synchronise else local_batch)
    return convert_sync_batch_norm(model) if synchronise else model, cells


class Trainer:
    """Trains, evaluates and saves the steps of a plan in order."""

    def __init__(
        self,
        plan: Plan,
        model: Segmenter,
        method: Method,
        folder: RunFolder,
        fabric: Fabric,
        reporter: Reporter,
        resume_command: str = "",
    ) -> None:
        self.plan, self.model, self.method = plan, model, method
        self.folder, self.fabric, self.reporter = folder, fabric, reporter
        self.config = plan.config
        self.log = TrainLog(folder, self.config.train.log_every, write=rank() == 0)
        self.clock = RunClock([step_iterations(plan, step) for step in range(len(plan.scenario.steps))])
        self.signals = StopSignals(resume_command or _resume_command(folder, plan.config))
        self.scaler = fabric.strategy.precision.state_dict()
        """State of fp16's loss scaler with which every step begins, also one that a resumed run begins with."""
        self.checkpoints = InStepCheckpoints(folder, self.config.train.checkpoint_minutes, self.signals)

    def run(self, start: ResumePoint) -> None:
        """Train the steps that are not finished."""
        for warning in start.warnings:
            self.reporter.say(f"warning: {warning}")
        self.first_step, steps = start.step, len(self.plan.scenario.steps)
        if start.step == steps:
            self.reporter.say("all steps are finished; there is nothing to train")
            # A process killed after its last step may have left this to do:
            on_rank_zero(lambda: write_results(self.folder, self.folder.records()))
            on_rank_zero(self.folder.remove_checkpoints)
            self.write_gallery()
            return
        resumed = load_in_step(start.checkpoint) if start.checkpoint else None
        done = resumed.iteration if resumed else 0
        self.log.take_up(start.step, done)
        if start.step > 0:
            load_step(self.folder.step_path(start.step - 1), self.model, self.method)
        move_to_device(self.model, self.fabric.device)
        self.method.to(self.fabric.device)
        trained = any(self.plan.scenario.steps[step].images for step in range(start.step))
        resumed_at = (start.step, done) if start.begun and (trained or done) else None
        self.reporter.say(header(self.plan, self.model, self.fabric.device, resumed_at))
        updates = self.clock.updates
        updates_done = sum(updates[: start.step]) + done
        with self.signals, self.log.published(self.config, updates, updates_done, self.reporter):
            for step in range(start.step, steps):
                self.reporter.say(f"step {step}: {self.plan.describe_step(step)}")
                self.run_step(step, resumed if step == start.step else None)
            self.write_gallery()

    def run_step(self, step: int, resumed: InStepState | None = None) -> None:
        """Train, evaluate and save one step; ``resumed`` is the state to continue from."""
        timings = self.train_step(step, resumed)
        check_finite(self.model, step)
        evaluated, counted = evaluate_step(self.plan, self.model, step, self.log.records, self.reporter)
        record = evaluated | timings
        on_rank_zero(partial(write_step, self.plan, self.model, self.method, self.folder, step, counted))
        self.reporter.say(class_table(step, record, self.log.records))
        self.log.records.append(record)
        on_rank_zero(partial(write_results, self.folder, self.log.records))
        on_rank_zero(self.folder.remove_checkpoints)
        self.log.publish(record)

    def write_gallery(self) -> None:
        """Write the images that the report of the finished run shows, and the report once more."""
        if on_rank_zero(partial(write_gallery, self.plan, self.folder, self.fabric.device, self.reporter)):
            on_rank_zero(lambda: write_results(self.folder, self.folder.records()))

    def train_step(self, step: int, resumed: InStepState | None = None) -> dict[str, float]:
        """Train one step; return the seconds of training, of what precedes and follows it, and images per second."""
        inputs = StepInputs(self.config.train, self.fabric.device, self.reporter)
        context = step_context(self.plan, step, self.model, self.method, self.fabric, inputs)
        teacher = copy.deepcopy(self.model).eval().requires_grad_(False) if self.method.needs_teacher(context) else None
        self.model.eval().requires_grad_(True)
        self.fabric.strategy.precision.load_state_dict(self.scaler)
        started = time.monotonic()
        if resumed is None:
            self.method.begin_step(context)
        else:
            begin_again(self.method, context, resumed)
        preparation = time.monotonic() - started
        done, seconds = self._run_updates(context, inputs, teacher, resumed)
        gc.collect()  # frees DDP's hooks on the weights before the next step adds its own
        broadcast_buffers(self.model)
        started = time.monotonic()
        self.method.end_step(context)
        preparation += time.monotonic() - started
        images = done * self.config.optim.accumulate * self.config.train.batch
        return {"preparation_seconds": preparation, "seconds": seconds, "images_per_second": images / seconds}

    def _run_updates(
        self, context: StepContext, inputs: StepInputs, teacher: Segmenter | None, resumed: InStepState | None
    ) -> tuple[int, float]:
        """Run the updates of a step; return their number and the seconds they took, before an interruption too."""
        step, config = context.step, self.config
        updates = StepUpdates(self.plan, context, self.method, self.fabric, inputs, teacher, resumed)
        first, iterations = updates.done + 1, updates.iterations
        validation = StepValidation(
            self.plan,
            step,
            iterations,
            self.model,
            self.method,
            self.log,
            self.reporter,
            resumed.validation if resumed else None,
        )
        label = f"step {step} train" + (f", from update {first}" if resumed else "")
        if step == self.first_step and has_unsynchronised_batch_norm(self.model):
            self.reporter.say(LOCAL_BATCH_NORM)
        with (
            cudnn_benchmark(config.train),
            accelerated(self.model, self.method, config, self.fabric, self.reporter, teacher),
            self.reporter.task(label, iterations - updates.done) as task,
            self.signals.deferred(),
        ):
            updates.start_clock()
            self.checkpoints.restart_clock()
            for update in delay_by_one(self._updates(updates, validation)):
                terms, measures = update.read()
                if update.iteration == first:
                    check_balance_used(self.method, config)
                if self.log.due(update.iteration, iterations):
                    self.log.add(step, update.iteration, iterations, update.lr, terms, measures)
                task.advance(self.clock.note(step, update.iteration, sum(terms.values())))
                if expected := self.clock.first_estimate():
                    self.reporter.say(f"expected {expected}, evaluations not counted")
            if self.checkpoints.worth_saving():
                self._save_within_step(updates, validation)
            seconds = updates.seconds
        validation.restore_best(updates.done)
        return updates.done, seconds

    def _updates(self, updates: StepUpdates, validation: StepValidation) -> Iterator[Update | None]:
        """Run the updates that are left, validations and checkpoints; before these None lets all values be read."""
        while updates.done < updates.iterations and not validation.ended:
            yield updates.update(measure=self.log.due(updates.done + 1, updates.iterations))
            if validation.due(updates.done):
                yield None
                validation.validate(updates.done)
            if self.checkpoints.due():
                yield None
                self._save_within_step(updates, validation)

    def _save_within_step(self, updates: StepUpdates, validation: StepValidation) -> None:
        """Write metrics.jsonl whole and a checkpoint of the updates so far; leave if a signal says so."""
        on_rank_zero(partial(self.folder.write_records, self.log.records))
        self.checkpoints.save(updates.state(validation.state), updates.iterations)


def _resume_command(folder: RunFolder, config: RunConfig) -> str:
    """Return the command that continues a run, with the place of data that have moved since it was begun."""
    roots = [getattr(one.data, "root", None) for one in (folder.config(), config)]
    moved = f" --root {shlex.quote(str(roots[1]))}" if roots[0] != roots[1] else ""
    return f"faircl train --resume {shlex.quote(str(folder.path))}{moved}"
