"""Inputs of a step: its number of updates, its batches, the method's context, and the scan of whole images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from lightning_fabric import Fabric
from torch import Tensor

from faircl.acceleration import fused
from faircl.distributed import rank_slice, world_size
from faircl.engine.plan import Plan
from faircl.engine.update import forward_without_grad
from faircl.labels import IGNORE
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import Batch
from faircl.loading.inputs import training_batches
from faircl.loading.samplers import ListedBatches, Order, RareClassOrder, ShuffledOrder, StepBatchSampler, Stream
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.loading.whole_images import WholeImages, same_size_batches
from faircl.methods.base import Method, ScannedBatch, StepContext
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.progress import Reporter

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
    plan: Plan,
    step: int,
    method: Method,
    assigned: AssignedLabels | None,
    device: torch.device,
    reporter: Reporter,
    done: int = 0,
    windows: int = 0,
) -> Iterator[Batch]:
    """Return all training batches of a step, augmented and on the device; each process gets its share of every batch.

    ``assigned`` are the labels that the method assigned to unlabelled pixels before the step, ``done`` the updates
    whose batches are left out, ``windows`` the number of fixed windows per image, or 0.
    """
    config, streams = plan.config, batch_streams(plan, step)
    sizes = len(plan.scenario.steps[step].images), len(plan.memories[step].images)
    shown = tuple((stream.items, images) for stream, images in zip(streams, sizes, strict=False))
    dataset = replace(step_dataset(plan, step, method, assigned, windows), streams=shown)
    per_update = config.optim.accumulate
    batches, first = step_iterations(plan, step) * per_update, done * per_update
    return training_batches(dataset, StepBatchSampler(streams, batches, first), config.train, device, reporter)


def step_dataset(
    plan: Plan, step: int, method: Method, assigned: AssignedLabels | None = None, windows: int = 0
) -> StepDataset:
    """Return the training items of a step and of its replay memory."""
    config, memory = plan.config, plan.memories[step]
    c = config.train
    return StepDataset(
        data=plan.data,
        split=plan.splits.train,
        images=(*plan.scenario.steps[step].images, *memory.images),
        table=plan.scenario.train_table(step),
        assigned=assigned,
        augmentation=Augmentation(c.crop, c.scale, c.flip, c.jitter),
        seed=config.seed,
        step=step,
        auxiliary=config.data.auxiliary_maps(method.needs.auxiliary_map),
        tables=memory.tables(plan.scenario, step),
        windows=windows,
    )


def batch_streams(plan: Plan, step: int) -> list[Stream]:
    """Return the streams that fill a batch: images of the step and, if there is a replay memory, images of it."""
    balance, seed, replayed = plan.config.balance, plan.config.seed, plan.replayed(step)
    images, memory = len(plan.scenario.steps[step].images), len(plan.memories[step].images)
    order: Order = ShuffledOrder(images, seed, ("shuffle", step))
    if balance.sampling == "rare":
        counts = plan.label_counts(step)[:, int(plan.scenario.background) :]
        if counts.any():  # a domain may show nothing but background
            order = RareClassOrder(counts, balance.temperature, seed, step)
    streams = [Stream(order, plan.config.train.batch - replayed)]
    if replayed:
        streams.append(Stream(ShuffledOrder(memory, seed, ("memory", step)), replayed, images))
    return streams


def step_context(
    plan: Plan, step: int, model: Segmenter, method: Method, fabric: Fabric, reporter: Reporter
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
        scan=Scan(plan, step, model, method, fabric, reporter),
        all_labelled=scenario.setting == "sequential",
    )


@dataclass(frozen=True)
class Scan:
    """Runs a model, with its weights at the time of the call, over this process's share of a step's images."""

    plan: Plan
    step: int
    model: Segmenter
    method: Method
    fabric: Fabric
    reporter: Reporter

    def __call__(self, windows: int = 0) -> Iterator[ScannedBatch]:
        """Yield whole images, or with ``windows`` so many fixed windows of every image."""
        return self._windows(windows) if windows > 0 else self._images()

    def _windows(self, windows: int) -> Iterator[ScannedBatch]:
        config, device = self.plan.config.train, self.fabric.device
        dataset = step_dataset(self.plan, self.step, self.method, windows=windows)
        plain = replace(dataset.augmentation, flip=False, jitter=0.0)
        dataset = replace(dataset, augmentation=plain, auxiliary=None)
        order = ListedBatches(dataset.visits(), SCANNED_BATCHES * max(config.batch // world_size(), 1))
        own = len(self.plan.scenario.steps[self.step].images) * windows
        batches = training_batches(dataset, order, config, device, self.reporter)
        with fused(self.model), self.reporter.task(f"step {self.step} scan", len(order.pairs)) as task:
            for visited, batch in zip(order, batches, strict=True):
                assert batch.windows is not None, "the dataset has fixed windows"
                ids, numbers = [dataset.images[index] for _, index in visited], batch.windows[:, 0]
                # Windows of a replay memory need predictions, but counts and means are of the step's own images.
                labels = batch.labels.masked_fill((numbers >= own)[:, None, None], IGNORE)
                yield ScannedBatch(ids, labels, self._output(batch.image), numbers)
                for _ in visited:
                    task.advance()

    def _images(self) -> Iterator[ScannedBatch]:
        plan, step, device = self.plan, self.step, self.fabric.device
        images = tuple(rank_slice(plan.scenario.steps[step].images))
        table, tables = plan.scenario.train_table(step), plan.memories[step].tables(plan.scenario, step)
        whole = WholeImages(plan.data, plan.splits.train, images, table, tables=tables)
        with fused(self.model), self.reporter.task(f"step {step} scan", len(images)) as task:
            for group in same_size_batches(whole, plan.config.eval.batch, plan.config.train.workers, self.reporter):
                image = torch.stack([item.image for item in group]).to(device)
                labels = torch.stack([item.labels for item in group]).to(device).long()
                output = self._output(image.to(torch.get_default_dtype()) / 255)
                yield ScannedBatch([item.id for item in group], labels, output)
                for _ in group:
                    task.advance()

    def _output(self, image: Tensor) -> SegOutput:
        return forward_without_grad(self.fabric, self.model, image, self.method.needs.attentions)
