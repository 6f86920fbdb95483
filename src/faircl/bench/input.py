"""Timing of data loading: training windows per second, from image files on disk to batches on the device.

Without a GPU, batches are timed up to the point where they would be copied to one.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from faircl.bench.plain_loader import PlainDataset, plain_batches
from faircl.bench.synthetic_images import CLASSES, ImageSize, written_images
from faircl.bench.timing import BenchRow, benchmark_device, synchronize, synchronized_time
from faircl.config.schema import TrainConfig
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.loading.decoded_cache import DiskCache
from faircl.loading.inputs import StepInputs
from faircl.loading.prefetch import prefetch_to_device
from faircl.loading.samplers import ShuffledOrder, StepBatchSampler, Stream
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.parallel import available_cores
from faircl.progress import Reporter, SilentReporter
from faircl.readers.folder import FolderData

PLAIN = "plain Pillow loader"
SCALE = (0.5, 2.0)
WAYS: dict[str, dict[str, str]] = {
    "decode": {},
    "augment device": {"augment": "device"},
    "cache memory": {"cache": "memory"},
    "cache memory, augment device": {"cache": "memory", "augment": "device"},
    "cache disk": {"cache": "disk"},
    "cache gpu": {"cache": "gpu", "augment": "device"},
}
"""Settings of ``train`` that are timed beside the plain loader; the last one only on a GPU."""

_UNLIMITED = 1 << 40
_SAMPLED_WINDOWS = 32


@dataclass(frozen=True)
class InputSize:
    """What is read: images on disk, side of a window, windows per batch, seconds timed per row.

    ``noise``: see ``ImageSize``.
    """

    images: int = 240
    width: int = 683
    height: int = 512
    size: int = 512
    batch: int = 24
    seconds: float = 5.0
    noise: float = 9.0

    @property
    def on_disk(self) -> ImageSize:
        """The images to write."""
        return ImageSize(self.images, self.width, self.height, self.noise)


@dataclass(frozen=True)
class InputSpeed(BenchRow):
    """Speed of one way to read.

    ``core_milliseconds``: CPU time per window, of this process and its workers together; None if the system does not
    provide it. ``megabytes_per_second``: copied from host to device. ``ratio``: to the plain loader.
    """

    way: str
    workers: int
    crops_per_second: float
    core_milliseconds: float | None
    megabytes_per_second: float
    ratio: float


class LoaderSpeed(NamedTuple):
    """Windows per second, and CPU seconds per window."""

    speed: float
    cpu: float | None


def bench_input(size: InputSize, workers: Sequence[int], reporter: Reporter) -> tuple[list[InputSpeed], float]:
    """Time all ways to read with each number of workers; return the rows and the mean bytes of an image file."""
    device = benchmark_device()
    ways = [way for way in WAYS if way != "cache gpu" or device.type == "cuda"]
    if (most := max(workers)) > available_cores():
        raise UserError(
            f"--workers is {most}, but this process may use {available_cores()} cores; ask for no more than that."
        )
    rows: list[InputSpeed] = []
    with (
        written_images(size.on_disk, reporter) as root,
        reporter.task("timing", len(workers) * (1 + len(ways))) as task,
    ):
        data = FolderData(root)
        dataset = _dataset(data, size)
        plain_dataset = PlainDataset(data, dataset.images, size.size, SCALE)
        files = [os.path.getsize(data.image_path("train", id)) for id in dataset.images]
        for count in workers:
            plain = _time_batches(
                plain_batches(plain_dataset, size.batch, _UNLIMITED, count, device), size, count, device
            )
            rows.append(_row(PLAIN, count, plain, plain, size.size**2 * (3 * 4 + 8)))
            task.advance(f"{PLAIN} {plain.speed:.0f}/s")
            for way in ways:
                config = TrainConfig.model_validate({**WAYS[way], "workers": count})
                timed = _time_batches(_batches(dataset, config, size, device), size, count, device)
                rows.append(_row(way, count, timed, plain, _bytes_per_window(dataset, config)))
                task.advance(f"{way} {timed.speed:.0f}/s")
    return rows, float(np.mean(files))


def _row(way: str, workers: int, timed: LoaderSpeed, plain: LoaderSpeed, bytes_each: float) -> InputSpeed:
    return InputSpeed(
        way=way,
        workers=workers,
        crops_per_second=timed.speed,
        core_milliseconds=None if timed.cpu is None else 1e3 * timed.cpu,
        megabytes_per_second=timed.speed * bytes_each / 1e6,
        ratio=timed.speed / plain.speed,
    )


def _time_batches(batches: Iterator[object], size: InputSize, workers: int, device: torch.device) -> LoaderSpeed:
    """Take batches as fast as they come; the first ones, read while workers start and queues fill, are not timed.

    The caller must keep no reference to ``batches``: their workers stop when the last one is dropped.
    """
    for _ in range(2 * workers + 2):
        next(batches)
    synchronize(device)
    started, before, taken = time.perf_counter(), _cpu_seconds(), 0
    while taken == 0 or time.perf_counter() - started < size.seconds:
        next(batches)
        taken += size.batch
    seconds, after = synchronized_time(device) - started, _cpu_seconds()
    del batches
    gc.collect()  # stops the workers
    return LoaderSpeed(taken / seconds, None if before is None or after is None else (after - before) / taken)


def _cpu_seconds() -> float | None:
    """Return the CPU time of this process and its workers so far; None if the system does not provide it."""
    total = time.process_time()
    for child in multiprocessing.active_children():
        try:
            fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system
    return total


def _dataset(data: FolderData, size: InputSize) -> StepDataset:
    table = np.append(np.arange(CLASSES), np.full(256 - CLASSES, IGNORE)).astype(np.uint16)
    augmentation = Augmentation(size.size, SCALE, True, 0.0)
    return StepDataset(data, "train", tuple(data.ids("train")), table, None, augmentation, 0, 0)


def _batches(dataset: StepDataset, config: TrainConfig, size: InputSize, device: torch.device) -> Iterator[object]:
    """Return the batches that training would read; the disk cache is filled first."""
    if config.cache == "disk":
        cache = DiskCache(dataset.data)
        for id in dataset.images:
            cache.read("train", id)
    order = StepBatchSampler([Stream(ShuffledOrder(size.images, 0, ("bench",)), size.batch)], _UNLIMITED)
    batches = StepInputs(config, device, SilentReporter()).loader_batches(dataset, order)
    return prefetch_to_device(batches, device) if device.type == "cuda" else batches


def _bytes_per_window(dataset: StepDataset, config: TrainConfig) -> float:
    """Return the mean bytes that are copied from host to device for a window: three of image and one of label."""
    if config.cache == "gpu":
        return 0.0
    if config.augment == "device":
        shape = dataset.data.read_mask(dataset.split, dataset.images[0]).shape
        windows = [dataset.draw_augmentation(draw, 0, shape).crop.clip_to(shape)[0] for draw in range(_SAMPLED_WINDOWS)]
        return 4 * float(np.mean([(rows.stop - rows.start) * (cols.stop - cols.start) for rows, cols in windows]))
    return 4.0 * dataset.augmentation.crop**2
