"""From a step's dataset to batches on the device, by the cache and the place of augmentation that were chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from faircl.config.schema import TrainConfig
from faircl.data.sample import SegmentationData
from faircl.loading.batch import Batch, LoaderBatch
from faircl.loading.decoded_cache import DiskCache, MemoryCache
from faircl.loading.device_cache import DeviceCache
from faircl.loading.loader import StepDataset, train_loader
from faircl.loading.prefetch import prefetch_to_device
from faircl.loading.samplers import StepBatchSampler
from faircl.progress import Reporter


def check_inputs(config: TrainConfig, data: SegmentationData) -> None:
    """Raise an error if a data set cannot be read as the settings want."""
    if config.cache == "disk":
        DiskCache(data).check_folder()


def training_batches(
    dataset: StepDataset, order: StepBatchSampler, config: TrainConfig, device: torch.device, reporter: Reporter
) -> Iterator[Batch]:
    """Return this process's share of all batches of a step, on the device; what is to be decoded first is so now."""
    return prefetch_to_device(loader_batches(dataset, order, config, device, reporter), device)


def loader_batches(
    dataset: StepDataset, order: StepBatchSampler, config: TrainConfig, device: torch.device, reporter: Reporter
) -> Iterator[LoaderBatch]:
    """Return the same batches before they are brought to the device."""
    label, images = f"step {dataset.step} decode", len(dataset.images)
    if config.cache == "gpu":
        with reporter.task(label, images) as task:
            return DeviceCache(dataset, device, task.advance).batches(order)
    if config.cache == "memory":
        with reporter.task(label, images) as task:
            kept = MemoryCache(dataset.data, dataset.split, dataset.images, task.advance)
        dataset = replace(dataset, data=kept)
    elif config.cache == "disk":
        dataset = replace(dataset, data=DiskCache(dataset.data))
    dataset = replace(dataset, cut_only=config.augment == "device")
    return train_loader(dataset, order, config.workers, pin=device.type == "cuda")
