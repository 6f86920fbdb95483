"""The input pipeline of a step: from its dataset to batches on the device, as train.cache and train.augment say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from faircl.config.schema import TrainConfig
from faircl.data.sample import SegmentationData
from faircl.loading.batch import Batch, LoaderBatch
from faircl.loading.decoded_cache import DiskCache, MemoryCache
from faircl.loading.device_cache import DeviceCache
from faircl.loading.loader import train_loader
from faircl.loading.prefetch import prefetch_to_device
from faircl.loading.samplers import BatchOrder
from faircl.loading.step_dataset import StepDataset
from faircl.progress import Reporter


def check_inputs(config: TrainConfig, data: SegmentationData) -> None:
    """Raise an error if the data set cannot be cached as train.cache says."""
    if config.cache == "disk":
        DiskCache(data).check_folder()


def training_batches(
    dataset: StepDataset, order: BatchOrder, config: TrainConfig, device: torch.device, reporter: Reporter
) -> Iterator[Batch]:
    """Return this process's part of all batches of a step, on the device; caches are filled before the first one."""
    return prefetch_to_device(loader_batches(dataset, order, config, device, reporter), device)


def loader_batches(
    dataset: StepDataset, order: BatchOrder, config: TrainConfig, device: torch.device, reporter: Reporter
) -> Iterator[LoaderBatch]:
    """Return the same batches before they are moved to the device."""
    label, images = f"step {dataset.step} decode", len(dataset.images)
    if config.cache == "gpu":
        with reporter.task(label, images) as task:
            return DeviceCache(dataset, device, task.advance).batches(order)
    if config.cache == "memory":
        with reporter.task(label, images) as task:
            cached = MemoryCache(dataset.data, dataset.split, dataset.images, task.advance)
        dataset = replace(dataset, data=cached)
    elif config.cache == "disk":
        dataset = replace(dataset, data=DiskCache(dataset.data))
    dataset = replace(dataset, resample_on_device=config.augment == "device")
    return train_loader(dataset, order, config.workers, pin=device.type == "cuda", reporter=reporter)
