"""From a step's dataset to batches on the device, by the cache and the place of augmentation that were chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from faircl.config.schema import TrainConfig
from faircl.data.sample import SegmentationData
from faircl.loading.batch import Batch, Sent
from faircl.loading.decoded_cache import SamplesInMemory, SamplesOnDisk
from faircl.loading.device_cache import ResidentImages
from faircl.loading.loader import StepDataset, train_loader
from faircl.loading.prefetch import prepared_on
from faircl.loading.samplers import CountedBatches
from faircl.progress import Reporter


def check_inputs(config: TrainConfig, data: SegmentationData) -> None:
    """Raise an error if a data set cannot be read as the settings want."""
    if config.cache == "disk":
        SamplesOnDisk(data).check_folder()


def training_batches(
    dataset: StepDataset, order: CountedBatches, config: TrainConfig, device: torch.device, reporter: Reporter
) -> Iterator[Batch]:
    """Return this process's share of all batches of a step, on the device; what is to be decoded first is so now."""
    return prepared_on(sent_batches(dataset, order, config, device, reporter), device)


def sent_batches(
    dataset: StepDataset, order: CountedBatches, config: TrainConfig, device: torch.device, reporter: Reporter
) -> Iterator[Sent]:
    """Return the same batches before they are brought to the device."""
    label, images = f"step {dataset.step} decode", len(dataset.images)
    if config.cache == "gpu":
        with reporter.task(label, images) as task:
            return ResidentImages(dataset, device, task.advance).batches(order)
    if config.cache == "memory":
        with reporter.task(label, images) as task:
            kept = SamplesInMemory(dataset.data, dataset.split, dataset.images, task.advance)
        dataset = replace(dataset, data=kept)
    elif config.cache == "disk":
        dataset = replace(dataset, data=SamplesOnDisk(dataset.data))
    dataset = replace(dataset, cut_only=config.augment == "device")
    return train_loader(dataset, order, config.workers, pin=device.type == "cuda")
