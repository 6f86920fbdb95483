"""The input pipeline of a step: from its dataset to batches on the device, as train.cache and train.augment say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
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
from faircl.loading.soft_labels import SoftLabels
from faircl.loading.step_dataset import StepDataset
from faircl.progress import Reporter, Task


def check_inputs(config: TrainConfig, data: SegmentationData) -> None:
    """Raise an error if the data set cannot be cached as train.cache says."""
    if config.cache == "disk":
        DiskCache(data).check_folder()


class StepInputs:
    """The input pipeline of one step; its scan and its training share the images that are decoded for one of them."""

    def __init__(self, config: TrainConfig, device: torch.device, reporter: Reporter) -> None:
        self.config, self.device, self.reporter = config, device, reporter
        self._in_memory: MemoryCache | None = None
        self._on_device: DeviceCache | None = None

    def batches(self, dataset: StepDataset, order: BatchOrder, soft: SoftLabels | None = None) -> Iterator[Batch]:
        """Return this process's part of all batches, on the device and with soft labels where there are any.

        Caches are filled before the first batch.
        """
        return prefetch_to_device(self.loader_batches(dataset, order), self.device, soft)

    def loader_batches(self, dataset: StepDataset, order: BatchOrder) -> Iterator[LoaderBatch]:
        """Return the same batches before they are moved to the device."""
        config = self.config
        if config.cache == "gpu":
            return self._device_cache(dataset).batches(dataset, order)
        if config.cache == "memory":
            dataset = replace(dataset, data=self._memory_cache(dataset))
        elif config.cache == "disk":
            dataset = replace(dataset, data=DiskCache(dataset.data))
        dataset = replace(dataset, resample_on_device=config.augment == "device")
        return train_loader(dataset, order, config.workers, pin=self.device.type == "cuda", reporter=self.reporter)

    def _device_cache(self, dataset: StepDataset) -> DeviceCache:
        if self._on_device is None or not self._on_device.holds(dataset):
            self._on_device = None  # frees its memory before another one is filled
            with self._decoding(dataset) as task:
                self._on_device = DeviceCache(dataset, self.device, task.advance)
        return self._on_device

    def _memory_cache(self, dataset: StepDataset) -> MemoryCache:
        if self._in_memory is None:  # it reads images that it does not hold
            with self._decoding(dataset) as task:
                self._in_memory = MemoryCache(dataset.data, dataset.split, dataset.images, task.advance)
        return self._in_memory

    def _decoding(self, dataset: StepDataset) -> AbstractContextManager[Task]:
        return self.reporter.task(f"step {dataset.step} decode", len(dataset.images))
