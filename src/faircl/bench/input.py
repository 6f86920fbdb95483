"""Timing of the input side: training windows per second from image files on disk to batches on the device.

The data are drawn for the purpose: smooth colours with noise, and masks of blobs. The noise decides how much there is
to decode: 9 levels make JPEGs of 2.4 bits per pixel; 5 make 1.6, as many as files of CamVid's street scenes have.
Where there is no GPU, batches are timed as they would be sent to one.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from faircl.config.schema import TrainConfig
from faircl.data.cache_files import CACHE_VARIABLE
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.loading.decoded_cache import DiskCache
from faircl.loading.inputs import loader_batches
from faircl.loading.prefetch import prefetch_to_device
from faircl.loading.samplers import ShuffledOrder, StepBatchSampler, Stream
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.parallel import available_cores
from faircl.progress import Reporter, SilentReporter
from faircl.readers.folder import FolderData

CLASSES = 151
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
"""What is timed beside the plain loader, with its settings of ``train``; the last where there is a GPU."""

_FOR_EVER = 1 << 40  # batches
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class InputSize:
    """What is read, and for how long: images on disk, side of a window, windows per batch, seconds timed per row.

    ``noise``: standard deviation of an image's colours around smooth ones, in levels of 255.
    """

    images: int = 240
    width: int = 683
    height: int = 512
    size: int = 512
    batch: int = 24
    seconds: float = 5.0
    noise: float = 9.0


@dataclass(frozen=True)
class InputSpeed:
    """Speed of one way to read.

    ``core_milliseconds``: CPU time per window, of this process and its workers together; None where the system does
    not tell. ``megabytes_per_second``: what reaches the device from the host. ``ratio``: to the plain loader.
    """

    way: str
    workers: int
    crops_per_second: float
    core_milliseconds: float | None
    megabytes_per_second: float
    ratio: float

    def to_json(self) -> dict[str, Any]:
        """Return the numbers."""
        return asdict(self)


class Timed(NamedTuple):
    """Windows per second, and CPU seconds per window."""

    speed: float
    cpu: float | None


def bench_input(size: InputSize, workers: Sequence[int], reporter: Reporter) -> tuple[list[InputSpeed], float]:
    """Time all ways to read with each number of workers; return them, and the mean size of an image file in bytes."""
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    ways = [way for way in WAYS if way != "cache gpu" or device.type == "cuda"]
    if (most := max(workers)) > available_cores():
        raise UserError(
            f"--workers is {most}, but this process may use {available_cores()} cores; ask for no more than that."
        )
    rows: list[InputSpeed] = []
    with _written(size, reporter) as root, reporter.task("timing", len(workers) * (1 + len(ways))) as task:
        data = FolderData(root)
        dataset = _dataset(data, size)
        files = [os.path.getsize(data.image_path("train", id)) for id in dataset.images]
        for count in workers:
            first = _time(_plain_batches(dataset, size, count, device), size, count, device)
            found = [_row(PLAIN, count, first, first, size.size**2 * (3 * 4 + 8))]
            task.advance(f"{PLAIN} {first.speed:.0f}/s")
            for way in ways:
                config = TrainConfig.model_validate({**WAYS[way], "workers": count})
                if config.cache == "disk":
                    kept = DiskCache(data)
                    for id in dataset.images:
                        kept.read("train", id)
                sent = loader_batches(dataset, _order(size), config, device, SilentReporter())
                # What a GPU would do is not timed where there is none.
                timed = _time(prefetch_to_device(sent, device) if device.type == "cuda" else sent, size, count, device)
                del sent
                found.append(_row(way, count, timed, first, _sent(dataset, config)))
                task.advance(f"{way} {timed.speed:.0f}/s")
            rows += found
    return rows, float(np.mean(files))


def _row(way: str, workers: int, timed: Timed, first: Timed, bytes_each: float) -> InputSpeed:
    return InputSpeed(
        way=way,
        workers=workers,
        crops_per_second=timed.speed,
        core_milliseconds=None if timed.cpu is None else 1e3 * timed.cpu,
        megabytes_per_second=timed.speed * bytes_each / 1e6,
        ratio=timed.speed / first.speed,
    )


def _time(batches: Iterator[object], size: InputSize, workers: int, device: torch.device) -> Timed:
    """Take batches as fast as they come; the first ones, made while workers start and queues fill, are not timed."""
    for _ in range(2 * workers + 2):
        next(batches)
    _wait(device)
    started, before, taken = time.perf_counter(), _cpu_seconds(), 0
    while taken == 0 or time.perf_counter() - started < size.seconds:
        next(batches)
        taken += size.batch
    _wait(device)
    seconds, after = time.perf_counter() - started, _cpu_seconds()
    del batches
    gc.collect()  # ends the workers
    return Timed(taken / seconds, None if before is None or after is None else (after - before) / taken)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _cpu_seconds() -> float | None:
    """CPU time of this process and of its workers so far; None where the system does not tell."""
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


def _order(size: InputSize) -> StepBatchSampler:
    return StepBatchSampler([Stream(ShuffledOrder(size.images, 0, ("bench",)), size.batch)], _FOR_EVER)


def _sent(dataset: StepDataset, config: TrainConfig) -> float:
    """Bytes that a window takes on its way to the device, on average."""
    if config.cache == "gpu":
        return 0.0
    items = 32
    if config.augment == "device":
        shape = dataset.data.read_mask(dataset.split, dataset.images[0]).shape
        shown = [dataset.draw_augmentation(draw, shape).crop.clip_to(shape)[0] for draw in range(items)]
        return 4 * float(np.mean([(rows.stop - rows.start) * (cols.stop - cols.start) for rows, cols in shown]))
    return 4.0 * dataset.augmentation.crop**2


# The data


@contextmanager
def _written(size: InputSize, reporter: Reporter) -> Iterator[Path]:
    """Write the data to a temporary folder, which is also the cache's for as long as it exists."""
    before = os.environ.get(CACHE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="faircl-bench-") as name:
        root = Path(name)
        try:
            _write(root, size, reporter)
        except OSError as error:
            raise UserError(
                f"Cannot write the images to be read to {root}: {error.strerror or error}; set TMPDIR to a folder with "
                "more room, or lower --images."
            ) from None
        os.environ[CACHE_VARIABLE] = str(root / "cache")
        try:
            yield root
        finally:
            with suppress(KeyError):
                del os.environ[CACHE_VARIABLE]
            if before is not None:
                os.environ[CACHE_VARIABLE] = before


def _write(root: Path, size: InputSize, reporter: Reporter) -> None:
    for kind in ("images", "masks"):
        (root / kind / "train").mkdir(parents=True)
    (root / "classes.txt").write_text("\n".join(f"class {k}" for k in range(CLASSES)), encoding="utf-8")
    with reporter.task("writing images", size.images) as task:
        for number in range(size.images):
            image, mask = _scene(np.random.default_rng(number), size)
            image.save(root / f"images/train/{number:05}.jpg", quality=88)
            mask.save(root / f"masks/train/{number:05}.png")
            task.advance()


def _scene(rng: np.random.Generator, size: InputSize) -> tuple[Pillow.Image, Pillow.Image]:
    """Draw an image and its mask."""
    height, width = size.height, size.width
    cells = height // 40 + 2, width // 40 + 2
    coarse = Pillow.fromarray(rng.integers(0, 256, (*cells, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Pillow.Resampling.BICUBIC), np.float32)
    noisy = smooth + rng.normal(0, size.noise, smooth.shape).astype(np.float32)
    blocks = Pillow.fromarray(rng.integers(0, CLASSES, cells, dtype=np.uint8))
    straight = np.asarray(blocks.resize((width, height), Pillow.Resampling.NEAREST))
    rows, cols = np.arange(height)[:, None], np.arange(width)
    bent = straight[
        (rows + 8 * np.sin(cols / 11)).astype(int).clip(0, height - 1),
        (cols + 8 * np.cos(rows / 13)).astype(int).clip(0, width - 1),
    ]
    return Pillow.fromarray(noisy.clip(0, 255).astype(np.uint8)), Pillow.fromarray(bent)


# The plain loader


@dataclass(frozen=True)
class PlainDataset(Dataset[tuple[Tensor, Tensor]]):
    """What a first version of any training script does: Pillow, floats in the worker, int64 masks."""

    data: FolderData
    images: tuple[str, ...]
    size: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Decode, zoom, pad, crop, mirror and normalise an image and its mask."""
        id, side = self.images[index], self.size
        image = Pillow.open(self.data.image_path("train", id)).convert("RGB")
        mask: Pillow.Image = Pillow.open(self.data.mask_path("train", id))
        zoom = float(torch.empty(1).uniform_(*SCALE))
        wide, high = round(image.width * zoom), round(image.height * zoom)
        image = image.resize((wide, high), Pillow.Resampling.BILINEAR)
        mask = mask.resize((wide, high), Pillow.Resampling.NEAREST)
        left, top = (int(torch.randint(max(extent - side, 0) + 1, ())) for extent in (wide, high))
        box = (left, top, left + side, top + side)  # what lies beyond is padded
        image, mask = image.crop(box), mask.crop(box)
        if torch.rand(()) < 0.5:
            image, mask = (one.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT) for one in (image, mask))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(values)[:, None, None] for values in (_MEAN, _STD))
        return (pixels - mean) / std, torch.from_numpy(np.array(mask)).long()


def _plain_batches(dataset: StepDataset, size: InputSize, workers: int, device: torch.device) -> Iterator[object]:
    assert isinstance(dataset.data, FolderData)
    plain = PlainDataset(dataset.data, dataset.images, size.size)
    sampler = RandomSampler(plain, replacement=True, num_samples=_FOR_EVER)
    loader = DataLoader(
        plain, size.batch, sampler=sampler, num_workers=workers, pin_memory=device.type == "cuda", drop_last=True
    )
    for images, masks in loader:
        yield images.to(device, non_blocking=True), masks.to(device, non_blocking=True)
