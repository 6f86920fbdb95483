"""Inputs of a step: its number of updates, its batches, the method's context, and the scan of its images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from lightning_fabric import Fabric
from torch import Tensor

from faircl.acceleration.evaluation import evaluation_mode
from faircl.distributed import rank_slice, world_size
from faircl.engine.plan import Plan
from faircl.engine.update import forward_without_grad
from faircl.labels import IGNORE
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import Batch
from faircl.loading.inputs import StepInputs
from faircl.loading.samplers import ListedBatches, Order, RareClassOrder, ShuffledOrder, StepBatchSampler, Stream
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.loading.whole_images import WholeImages, same_size_batches
from faircl.methods.base import Method, ScannedBatch, StepContext
from faircl.models.segmenter import Segmenter, SegOutput

SCANNED_BATCHES = 4
"""Training batches that are scanned at a time: a forward pass alone has room for more windows."""


def step_iterations(plan: Plan, step: int) -> int:
    """Return the number of updates of a step: ⌈epochs · images / (batch · accumulate)⌉."""
    c = plan.config.train
    epochs = c.epochs if step == 0 or c.later_epochs is None else c.later_epochs
    return math.ceil(epochs * len(plan.scenario.steps[step].images) / (c.batch * plan.config.optim.accumulate))


def updates_per_epoch(plan: Plan, step: int) -> float:
    """Return the number of updates in which a step sees each of its images once."""
    return len(plan.scenario.steps[step].images) / (plan.config.train.batch * plan.config.optim.accumulate)


def step_batches(
    plan: Plan, context: StepContext, method: Method, inputs: StepInputs, done: int = 0
) -> Iterator[Batch]:
    """Return all training batches of a step, augmented and on the device; each process gets its share of every batch.

    The context says which labels, soft labels and fixed windows the method has asked for when it began the step;
    ``done`` are the updates whose batches are left out.
    """
    dataset = step_dataset(plan, context.step, method, context.assigned, context.windows)
    return inputs.batches(dataset, step_order(plan, context.step, done), context.soft)


def step_order(plan: Plan, step: int, done: int = 0) -> StepBatchSampler:
    """Return the order of a step's training items, without the batches of the ``done`` updates."""
    per_update = plan.config.optim.accumulate
    return StepBatchSampler(batch_streams(plan, step), step_iterations(plan, step) * per_update, done * per_update)


def step_dataset(
    plan: Plan, step: int, method: Method, assigned: AssignedLabels | None = None, windows: int = 0
) -> StepDataset:
    """Return the training items of a step and of its replay memory.

    ``assigned`` are the labels that the method assigned to unlabelled pixels before the step, ``windows`` the number of
    fixed windows per image, or 0.
    """
    config, memory = plan.config, plan.memories[step]
    c, sizes = config.train, (len(plan.scenario.steps[step].images), len(memory.images))
    return StepDataset(
        data=plan.data,
        split=plan.splits.train,
        images=(*plan.scenario.steps[step].images, *memory.images),
        table=plan.scenario.train_table(step),
        assigned=assigned,
        augmentation=Augmentation(c.crop, c.scale, c.flip, c.jitter),
        seed=config.seed,
        step=step,
        earlier_steps=plan.scenario.earlier_steps,
        auxiliary=config.data.auxiliary_maps(method.needs.auxiliary_map),
        tables=memory.tables(plan.scenario, step),
        windows=windows,
        streams=tuple((stream.items, images) for stream, images in zip(batch_streams(plan, step), sizes, strict=False)),
    )


def batch_streams(plan: Plan, step: int) -> list[Stream]:
    """Return the streams that fill a batch: images of the step and, if there is a replay memory, images of it."""
    balance, seed, replayed = plan.config.balance, plan.config.seed, plan.replayed(step)
    images, memory = len(plan.scenario.steps[step].images), len(plan.memories[step].images)
    seed_step = plan.scenario.seed_step(step)
    order: Order = ShuffledOrder(images, seed, ("shuffle", seed_step))
    if balance.sampling == "rare":
        counts = plan.label_counts(step)[:, int(plan.scenario.background) :]
        if counts.any():  # a domain may show nothing but background
            order = RareClassOrder(counts, balance.temperature, seed, seed_step)
    streams = [Stream(order, plan.config.train.batch - replayed)]
    if replayed:
        streams.append(Stream(ShuffledOrder(memory, seed, ("memory", seed_step)), replayed, images))
    return streams


def step_context(
    plan: Plan, step: int, model: Segmenter, method: Method, fabric: Fabric, inputs: StepInputs
) -> StepContext:
    """Return what a method is told about a step."""
    scenario, counts = plan.scenario, plan.label_counts(step)
    return StepContext(
        step=step,
        old_classes=scenario.channels(step - 1),
        classes=scenario.channels(step),
        background=scenario.background,
        unlabelled=scenario.unlabelled,
        domain=step > 0 and scenario.by_domain,
        seed=plan.config.seed,
        model=model,
        label_pixels=torch.from_numpy(counts.sum(0)),
        label_images=torch.from_numpy((counts > 0).sum(0)),
        pixels=plan.pixels(step),
        scan=Scan(plan, step, model, method, fabric, inputs),
        all_labelled=scenario.setting == "sequential",
        earlier_steps=scenario.earlier_steps,
    )


@dataclass(frozen=True)
class Scan:
    """Runs a model, in evaluation mode and with its weights at the time of the call, over this process's images."""

    plan: Plan
    step: int
    model: Segmenter
    method: Method
    fabric: Fabric
    inputs: StepInputs

    def __call__(self, windows: int = 0, most: int | None = None) -> Iterator[ScannedBatch]:
        """Yield whole images, or with ``windows`` those of so many fixed windows of every image that are trained on.

        With ``most``, so many of the windows of the step's own images at most, evenly spaced.
        """
        return self._windows(windows, most) if windows > 0 else self._images()

    def _windows(self, windows: int, most: int | None) -> Iterator[ScannedBatch]:
        plan, step = self.plan, self.step
        dataset = step_dataset(plan, step, self.method, windows=windows)
        dataset = replace(dataset, augmentation=replace(dataset.augmentation, flip=False, jitter=0.0))
        visits = dataset.first_visits(step_order(plan, step).whole_batches())
        own = len(plan.scenario.steps[step].images)
        if most is not None:
            visits = [visit for visit in visits if visit[1] < own]
            visits = [visits[k * len(visits) // most] for k in range(most)] if len(visits) > most else visits
        order = ListedBatches(visits, SCANNED_BATCHES * max(plan.config.train.batch // world_size(), 1))
        batches = self.inputs.batches(dataset, order)
        with evaluation_mode(self.model), self.inputs.reporter.task(f"step {step} scan", len(order.pairs)) as task:
            for visited, batch in zip(order, batches, strict=True):
                assert batch.windows is not None, "the dataset has fixed windows"
                ids = [dataset.images[index] for _, index in visited]
                # Windows of a replay memory need predictions, but counts and means are of the step's own images.
                remembered = torch.tensor([index >= own for _, index in visited], device=batch.labels.device)
                labels = batch.labels.masked_fill(remembered[:, None, None], IGNORE)
                numbers = [window.number for window in batch.windows]
                yield ScannedBatch(ids, labels, self._output(batch.image), numbers)
                for _ in visited:
                    task.advance()

    def _images(self) -> Iterator[ScannedBatch]:
        plan, step, device = self.plan, self.step, self.fabric.device
        images = tuple(rank_slice(plan.scenario.steps[step].images))
        table, tables = plan.scenario.train_table(step), plan.memories[step].tables(plan.scenario, step)
        whole = WholeImages(plan.data, plan.splits.train, images, table, tables=tables)
        reporter = self.inputs.reporter
        with evaluation_mode(self.model), reporter.task(f"step {step} scan", len(images)) as task:
            for group in same_size_batches(whole, plan.config.eval.batch, plan.config.train.workers, reporter):
                image = torch.stack([item.image for item in group]).to(device)
                labels = torch.stack([item.labels for item in group]).to(device).long()
                output = self._output(image.to(torch.get_default_dtype()) / 255)
                yield ScannedBatch([item.id for item in group], labels, output)
                for _ in group:
                    task.advance()

    def _output(self, image: Tensor) -> SegOutput:
        return forward_without_grad(self.fabric, self.model, image, self.method.needs.attentions)
