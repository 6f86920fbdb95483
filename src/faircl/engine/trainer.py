"""The step loop: prepare a step, train it, evaluate it, save it."""

from __future__ import annotations

import copy
import gc
import json
import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from PIL import Image as Pillow

from faircl.acceleration import accelerated, fused
from faircl.config.run import RunConfig
from faircl.data.masks import write_mask
from faircl.distributed import broadcast_buffers, init_process_group, on_rank_zero, rank, rank_slice
from faircl.engine.evaluate import evaluate, predict_masks
from faircl.engine.loggers import TrainLog, import_summary_writer
from faircl.engine.make_method import check_balance, make_method
from faircl.engine.network import (
    build_model,
    check_network,
    has_local_statistics,
    place,
    set_training_mode,
    synchronise_norm,
    synchronised,
)
from faircl.engine.optim import make_optimizer, make_schedule
from faircl.engine.plan import Plan, check_auxiliary_maps, make_plan, open_data
from faircl.engine.runtime import (
    has_fused_optimizer,
    make_fabric,
    memory_in_words,
    one_size,
    only_first,
    process_settings,
    smallest_share,
)
from faircl.engine.update import Updater, one_behind, without_gradient
from faircl.errors import UserError
from faircl.files import writing
from faircl.labels import Mask
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import Batch
from faircl.loading.inputs import check_inputs, training_batches
from faircl.loading.samplers import Order, RareClassOrder, ShuffledOrder, StepBatchSampler, Stream
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.loading.whole_images import WholeImages, same_size_batches
from faircl.methods.base import Method, ScannedBatch, StepContext
from faircl.metrics import average_over_steps, forgetting
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.report.page import write_run_page
from faircl.runs.checkpoint import load_step, save_step
from faircl.runs.environment import environment
from faircl.runs.folder import RunFolder
from faircl.runs.reading import step_metrics
from faircl.scenario import CONVENTIONS
from faircl.seeding import torch_seed

MOST_NAMES = 20
"""Classes or domains of a step that are named when it begins."""


def train(config: RunConfig, out: Path, reporter: Reporter, resume: bool = False) -> RunFolder:
    """Run all steps of a configuration into a folder; with ``resume`` continue at the first unfinished step.

    Under torchrun all processes call it alike; the run is the one that a single process would make, but for dropout
    and, without synchronised statistics, BatchNorm.
    """
    init_process_group()
    reporter = only_first(reporter)
    config = config.model_copy(update={"data": config.data.absolute()})  # found again from any folder
    done = on_rank_zero(partial(_finished, RunFolder(out), config, resume))
    with process_settings(config.train):
        fabric = make_fabric(config.train)
        data = open_data(config)
        check_inputs(config.train, data)
        model = _network(config, fabric, pretrained=done == 0)
        if config.train.tensorboard:
            import_summary_writer()
        plan = make_plan(config, data, reporter)
        method = make_method(config, model)
        on_rank_zero(partial(check_auxiliary_maps, plan, method.needs.auxiliary_map))
        # Everything that can be wrong with data and settings is known by now: only now may the disk be touched.
        folder = on_rank_zero(lambda: RunFolder.claim(out, config, plan.scenario, environment(), resume))
        with memory_in_words():
            Trainer(plan, model, method, folder, fabric, reporter).run()
    return folder


def _finished(folder: RunFolder, config: RunConfig, resume: bool) -> int:
    """Return the steps that a folder already holds of this run; refuse one that holds something else."""
    folder.check_free(config, resume)
    return folder.finished_steps()


def _network(config: RunConfig, fabric: Fabric, pretrained: bool) -> Segmenter:
    model = build_model(config, pretrained)
    synchronise, share = synchronised(config.train, fabric.device), smallest_share(config.train)
    check_network(config, model, config.train.batch if synchronise else share)
    return synchronise_norm(model) if synchronise else model


class Trainer:
    """Trains the steps of a plan one after the other."""

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
        self.config, self.scenario = plan.config, plan.scenario
        tensorboard = self.config.train.tensorboard and rank() == 0
        self.log = TrainLog(folder.path, self.config.train.log_every, tensorboard)

    def run(self) -> None:
        """Train what is not finished yet, step by step."""
        first = self.first = on_rank_zero(self.folder.finished_steps)
        records = on_rank_zero(partial(self.folder.records, before_step=first))
        if 0 < first < len(self.scenario.steps):
            load_step(self.folder.step_path(first - 1), self.model, self.method)
        place(self.model, self.fabric.device)
        self.method.to(self.fabric.device)
        for step in range(first, len(self.scenario.steps)):
            self.reporter.say(f"step {step}: {self._about(step)} ({self._size(step)})")
            speed = self.train_step(step)
            evaluation = self.finish_step(step, records) | speed
            records += [*self.log.records, evaluation]
            self.log.records.clear()
            on_rank_zero(partial(self._write_results, records))
        if first == len(self.scenario.steps):  # nothing was left to do, but a killed process may owe the last files
            on_rank_zero(lambda: self._write_results(self.folder.records()))
        self.log.close()

    def _about(self, step: int) -> str:
        """Name what a step brings: its domains, or its classes."""
        brought = self.scenario.steps[step]
        names = brought.domains or tuple(self.plan.data.classes.names[i] for i in brought.classes)
        return ", ".join(names) if len(names) <= MOST_NAMES else f"{', '.join(names[:MOST_NAMES])}, …: {len(names)}"

    def _size(self, step: int) -> str:
        """Say how many images a step has, and how many are remembered."""
        kept = len(self.plan.memories[step].images)
        return f"{len(self.scenario.steps[step].images)} images" + (f", {kept} in memory" if kept else "")

    # Training a step

    def train_step(self, step: int) -> dict[str, float]:
        """Train one step; return the seconds of what its method does beforehand and of training, and its speed."""
        context = self._context(step)
        teacher = copy.deepcopy(self.model).eval().requires_grad_(False) if self.method.needs_teacher(context) else None
        self.model.eval().requires_grad_(True)
        started = time.monotonic()
        self.method.begin_step(context)
        prepared = time.monotonic() - started
        seconds = self._update_all(step, teacher, context.assigned)
        gc.collect()  # DDP's hooks on the weights must be gone before the next step sets its own
        broadcast_buffers(self.model)
        self.method.end_step(context)
        images = self._iterations(step) * self.config.optim.accumulate * self.config.train.batch
        return {"preparation_seconds": prepared, "seconds": seconds, "images_per_second": images / seconds}

    def _update_all(self, step: int, teacher: Segmenter | None, assigned: AssignedLabels | None) -> float:
        """Make the updates of a step; return their seconds."""
        own = (rank(),) if rank() > 0 else ()
        torch.manual_seed(torch_seed(self.config.seed, "train", step, *own))  # dropout and the like
        optimizer = make_optimizer(
            self.config.optim, self.model, step, fused=has_fused_optimizer(self.config.train, self.fabric)
        )
        network, optimizer = self.fabric.setup(self.model, optimizer)
        set_training_mode(self.model, self.config, step)
        self._say_local_statistics(step)
        iterations = self._iterations(step)
        schedule = make_schedule(self.config.optim, optimizer, iterations)
        updater = Updater(self.fabric, self.method, network, optimizer, schedule, self.config.optim, teacher)
        batches = self._batches(step, iterations, assigned)
        with (
            one_size(self.config.train),
            accelerated(self.model, self.method, self.config, self.fabric, self.reporter, teacher),
            self.reporter.task(f"step {step} train", iterations) as task,
        ):
            started = time.monotonic()
            for update in one_behind(
                updater.update(batches, step, number, self.log.due(number, iterations))
                for number in range(1, iterations + 1)
            ):
                terms, measures = update.read()
                if update.iteration == 1:
                    check_balance(self.method, self.config)
                if self.log.due(update.iteration, iterations):
                    self.log.add(step, update.iteration, iterations, update.lr, terms, measures)
                task.advance(f"loss {sum(terms.values()):.3f}")
            return time.monotonic() - started

    def _say_local_statistics(self, step: int) -> None:
        if step == self.first and has_local_statistics(self.model):
            self.reporter.say(
                "note: BatchNorm sees each process's share of a batch alone, so this run depends on the number of "
                "processes; use several GPUs with train.sync_norm, train.frozen_norm, or a network without BatchNorm"
            )

    def _iterations(self, step: int) -> int:
        """Return the updates of a step: its epochs over its images, rounded up."""
        c = self.config.train
        epochs = c.epochs if step == 0 or c.later_epochs is None else c.later_epochs
        return math.ceil(epochs * len(self.scenario.steps[step].images) / (c.batch * self.config.optim.accumulate))

    def _batches(self, step: int, iterations: int, assigned: AssignedLabels | None) -> Iterator[Batch]:
        c = self.config.train
        dataset = StepDataset(
            data=self.plan.data,
            split=self.plan.splits.train,
            images=(*self.scenario.steps[step].images, *self.plan.memories[step].images),
            table=self.scenario.train_table(step),
            assigned=assigned,
            augmentation=Augmentation(c.crop, c.scale, c.flip, c.jitter),
            seed=self.config.seed,
            step=step,
            auxiliary=self.config.data.auxiliary_maps(self.method.needs.auxiliary_map),
            tables=self.plan.memories[step].tables(self.scenario, step),
        )
        order = StepBatchSampler(self._streams(step), iterations * self.config.optim.accumulate)
        return training_batches(dataset, order, c, self.fabric.device, self.reporter)

    def _streams(self, step: int) -> list[Stream]:
        """Say what a batch is made of: images of the step and, where there are any, of the memory."""
        batch, balance, seed = self.config.train.batch, self.config.balance, self.config.seed
        images, kept = len(self.scenario.steps[step].images), len(self.plan.memories[step].images)
        again = min(max(round(self.config.memory.share * batch), 1), batch - 1) if kept else 0
        order: Order = ShuffledOrder(images, seed, ("shuffle", step))
        if balance.sampling == "rare":
            counts = self.plan.label_counts(step)[:, int(self.scenario.background) :]
            if counts.any():  # a domain may show nothing but background
                order = RareClassOrder(counts, balance.temperature, seed, step)
        streams = [Stream(order, batch - again)]
        return [*streams, Stream(ShuffledOrder(kept, seed, ("memory", step)), again, images)] if again else streams

    def _context(self, step: int) -> StepContext:
        counts = self.plan.label_counts(step)
        return StepContext(
            step=step,
            old_classes=self.scenario.channels(step - 1),
            classes=self.scenario.channels(step),
            background=self.scenario.background,
            unlabelled=self.scenario.unlabelled,
            domain=step > 0 and self.scenario.by_domain,
            seed=self.config.seed,
            model=self.model,
            label_pixels=torch.from_numpy(counts.sum(0)),
            label_images=torch.from_numpy((counts > 0).sum(0)),
            pixels=self.plan.pixels(step),
            scan=partial(self._scan, step),
        )

    def _scan(self, step: int) -> Iterator[ScannedBatch]:
        """Run the model as it stands over this process's share of the step's whole images."""
        images = tuple(rank_slice(self.scenario.steps[step].images))
        table, tables = self.scenario.train_table(step), self.plan.memories[step].tables(self.scenario, step)
        whole = WholeImages(self.plan.data, self.plan.splits.train, images, table, tables=tables)
        with fused(self.model), self.reporter.task(f"step {step} scan", len(images)) as task:
            for group in same_size_batches(whole, self.config.eval.batch, self.config.train.workers):
                image = torch.stack([item.image for item in group]).to(self.fabric.device)
                labels = torch.stack([item.labels for item in group]).to(self.fabric.device).long()
                number = torch.get_default_dtype()
                output = without_gradient(self.fabric, self.model, image.to(number) / 255, self.method.needs.attentions)
                yield ScannedBatch([item.id for item in group], labels, output)
                for _ in group:
                    task.advance()

    # Finishing a step

    def finish_step(self, step: int, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Evaluate and save a trained step; return its record."""
        self._check_weights(step)
        metrics = evaluate(
            self.model,
            self.plan.data,
            self.plan.splits.test,
            self.scenario,
            step,
            convention=CONVENTIONS[self.config.eval.convention],
            size=self.config.eval.size,
            batch=self.config.eval.batch,
            workers=self.config.train.workers,
            reporter=self.reporter,
        )
        on_rank_zero(partial(self._write_step, step))
        earlier = step_metrics(records)
        record = {"kind": "eval", **metrics.to_json(), **forgetting([*earlier, metrics]).to_json()}
        record["leaked"] = self.scenario.steps[step].leaked
        return record | {"average_over_steps": average_over_steps([*earlier, metrics])}

    def _check_weights(self, step: int) -> None:
        """Refuse to save a network that the last update broke."""
        broken = [name for name, value in self.model.state_dict().items() if not value.isfinite().all()]
        if broken:
            raise UserError(
                f"The network is not finite after step {step}: {', '.join(broken[:3])}; lower optim.lr or set "
                "optim.clip. Finished steps are kept."
            )

    def _write_step(self, step: int) -> None:
        # The same few images after every step: those that the first one is tested on.
        ids = self.scenario.steps[0].test_images[: self.config.eval.examples]
        self._write_examples(ids)
        examples = predict_masks(self.model, self.plan.data, self.plan.splits.test, ids, self.scenario)
        self.folder.write_step(step, partial(self._save, step=step, examples=examples))

    def _write_examples(self, ids: Sequence[str]) -> None:
        folder = self.folder.path / "examples"
        with writing(folder):
            folder.mkdir(exist_ok=True)
            for k, id in enumerate(ids):
                sample = self.plan.data.read(self.plan.splits.test, id)
                Pillow.fromarray(sample.image).save(folder / f"{k}.image.png")
                write_mask(folder / f"{k}.truth.png", sample.mask)

    def _save(self, path: Path, step: int, examples: list[Mask]) -> None:
        save_step(path, self.model, self.method, self.scenario, step)
        if self.config.memory.images and step + 1 < len(self.scenario.steps):
            kept = {id: list(steps) for id, steps in self.plan.memories[step + 1].images.items()}
            (path / "memory.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
        (path / "examples").mkdir()
        for k, mask in enumerate(examples):
            write_mask(path / "examples" / f"{k}.png", mask)

    def _write_results(self, records: list[dict[str, Any]]) -> None:
        self.folder.write_records(records)
        write_run_page(self.folder.path)
