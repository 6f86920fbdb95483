"""The step loop: train a step, evaluate it, save it."""

from __future__ import annotations

import copy
import gc
import time
from functools import partial
from pathlib import Path

import torch
from lightning_fabric import Fabric

from faircl.acceleration import accelerated
from faircl.config.run import RunConfig
from faircl.distributed import broadcast_buffers, init_process_group, on_rank_zero, rank
from faircl.engine.data_record import unchanged_data
from faircl.engine.loggers import TrainLog, import_summary_writer
from faircl.engine.make_method import check_balance_used, make_method
from faircl.engine.network import (
    build_model,
    check_network,
    convert_sync_batch_norm,
    has_unsynchronised_batch_norm,
    move_to_device,
    set_training_mode,
    use_sync_batch_norm,
)
from faircl.engine.optim import make_optimizer, make_schedule
from faircl.engine.plan import Plan, check_auxiliary_maps, make_plan, open_data
from faircl.engine.runtime import (
    cudnn_benchmark,
    explain_out_of_memory,
    make_fabric,
    process_settings,
    rank_zero_reporter,
    smallest_local_batch,
    use_fused_optimizer,
)
from faircl.engine.step_inputs import step_batches, step_context, step_iterations
from faircl.engine.step_results import check_finite, evaluation_record, write_results, write_step
from faircl.engine.update import Updater, delay_by_one
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.inputs import check_inputs
from faircl.methods.base import Method
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.runs.checkpoint import load_step
from faircl.runs.environment import environment
from faircl.runs.folder import RunFolder
from faircl.runs.reading import Record
from faircl.seeding import torch_seed

LOCAL_BATCH_NORM = (
    "note: BatchNorm sees each process's share of a batch alone, so this run depends on the number of processes; use "
    "several GPUs with train.sync_norm, train.frozen_norm, or a network without BatchNorm"
)


def train(config: RunConfig, out: Path, reporter: Reporter, resume: bool = False) -> RunFolder:
    """Train all steps of a configuration into a folder; ``resume`` continues at the first unfinished step.

    Under torchrun every process makes the same call. The result equals that of a single process, except for dropout
    and for BatchNorm without synchronised statistics.
    """
    init_process_group()
    reporter = rank_zero_reporter(reporter)
    config = config.model_copy(update={"data": config.data.absolute()})  # --resume works from any directory
    finished = on_rank_zero(partial(_finished_steps, RunFolder(out), config, resume))
    with process_settings(config.train):
        fabric = make_fabric(config.train)
        data = open_data(config)
        check_inputs(config.train, data)
        model = _checked_network(config, fabric, pretrained=finished == 0)
        if config.train.tensorboard:
            import_summary_writer()
        plan = make_plan(config, data, reporter)
        method = make_method(config, model)
        on_rank_zero(partial(check_auxiliary_maps, plan, method.needs.auxiliary_map))
        # Data and settings have been checked; nothing is written before this line.
        folder = on_rank_zero(partial(_claim, out, plan, resume, reporter))
        with explain_out_of_memory():
            Trainer(plan, model, method, folder, fabric, reporter).run()
    return folder


def _finished_steps(folder: RunFolder, config: RunConfig, resume: bool) -> int:
    """Return the number of finished steps in a folder; raise a UserError if it cannot be used for this run."""
    folder.check_free(config, resume)
    return folder.finished_steps()


def _claim(out: Path, plan: Plan, resume: bool, reporter: Reporter) -> RunFolder:
    digests = unchanged_data(out, plan, reporter)
    return RunFolder.claim(out, plan.config, plan.scenario, environment(), resume, digests)


def _checked_network(config: RunConfig, fabric: Fabric, pretrained: bool) -> Segmenter:
    """Build the network and check that it can train on the configured batches."""
    model = build_model(config, pretrained)
    synchronise, local_batch = use_sync_batch_norm(config.train, fabric.device), smallest_local_batch(config.train)
    check_network(config, model, config.train.batch if synchronise else local_batch)
    return convert_sync_batch_norm(model) if synchronise else model


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
    ) -> None:
        self.plan, self.model, self.method = plan, model, method
        self.folder, self.fabric, self.reporter = folder, fabric, reporter
        self.config = plan.config
        tensorboard = self.config.train.tensorboard and rank() == 0
        self.log = TrainLog(folder.path, self.config.train.log_every, tensorboard)

    def run(self) -> None:
        """Train the unfinished steps."""
        first = self.first_step = on_rank_zero(self.folder.finished_steps)
        steps = len(self.plan.scenario.steps)
        records = on_rank_zero(partial(self.folder.records, before_step=first))
        if 0 < first < steps:
            load_step(self.folder.step_path(first - 1), self.model, self.method)
        move_to_device(self.model, self.fabric.device)
        self.method.to(self.fabric.device)
        for step in range(first, steps):
            self.reporter.say(f"step {step}: {self.plan.describe_step(step)}")
            timings = self.train_step(step)
            evaluation = self.finish_step(step, records) | timings
            records += [*self.log.records, evaluation]
            self.log.records.clear()
            on_rank_zero(partial(write_results, self.folder, records))
        if first == steps:  # a process killed after its last step may not have written the results
            on_rank_zero(lambda: write_results(self.folder, self.folder.records()))
        self.log.close()

    def train_step(self, step: int) -> dict[str, float]:
        """Train one step; return the seconds of preparation and of training, and the images per second."""
        context = step_context(self.plan, step, self.model, self.method, self.fabric, self.reporter)
        teacher = copy.deepcopy(self.model).eval().requires_grad_(False) if self.method.needs_teacher(context) else None
        self.model.eval().requires_grad_(True)
        started = time.monotonic()
        self.method.begin_step(context)
        preparation = time.monotonic() - started
        seconds = self._run_updates(step, teacher, context.assigned)
        gc.collect()  # frees DDP's hooks on the weights before the next step adds its own
        broadcast_buffers(self.model)
        self.method.end_step(context)
        images = step_iterations(self.plan, step) * self.config.optim.accumulate * self.config.train.batch
        return {"preparation_seconds": preparation, "seconds": seconds, "images_per_second": images / seconds}

    def _run_updates(self, step: int, teacher: Segmenter | None, assigned: AssignedLabels | None) -> float:
        """Run all updates of a step; return the seconds they took."""
        rank_key = (rank(),) if rank() > 0 else ()
        torch.manual_seed(torch_seed(self.config.seed, "train", step, *rank_key))  # for dropout
        optimizer = make_optimizer(
            self.config.optim, self.model, step, fused=use_fused_optimizer(self.config.train, self.fabric)
        )
        network, optimizer = self.fabric.setup(self.model, optimizer)
        set_training_mode(self.model, self.config, step)
        if step == self.first_step and has_unsynchronised_batch_norm(self.model):
            self.reporter.say(LOCAL_BATCH_NORM)
        iterations = step_iterations(self.plan, step)
        schedule = make_schedule(self.config.optim, optimizer, iterations)
        updater = Updater(self.fabric, self.method, network, optimizer, schedule, self.config.optim, teacher)
        batches = step_batches(self.plan, step, self.method, assigned, self.fabric.device, self.reporter)
        with (
            cudnn_benchmark(self.config.train),
            accelerated(self.model, self.method, self.config, self.fabric, self.reporter, teacher),
            self.reporter.task(f"step {step} train", iterations) as task,
        ):
            started = time.monotonic()
            for update in delay_by_one(
                updater.update(batches, step, iteration, self.log.due(iteration, iterations))
                for iteration in range(1, iterations + 1)
            ):
                terms, measures = update.read()
                if update.iteration == 1:
                    check_balance_used(self.method, self.config)
                if self.log.due(update.iteration, iterations):
                    self.log.add(step, update.iteration, iterations, update.lr, terms, measures)
                task.advance(f"loss {sum(terms.values()):.3f}")
            return time.monotonic() - started

    def finish_step(self, step: int, records: list[Record]) -> Record:
        """Evaluate and save a trained step; return its record."""
        check_finite(self.model, step)
        record = evaluation_record(self.plan, self.model, step, records, self.reporter)
        on_rank_zero(partial(write_step, self.plan, self.model, self.method, self.folder, step))
        return record
