"""The data loader of a step: worker processes that read, augment and pack batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module

from torch.utils.data import DataLoader

from faircl.loading.batch import PackedBatch
from faircl.loading.packed_tensors import SharedRing
from faircl.loading.samplers import BatchOrder
from faircl.loading.stalled_workers import say_if_stalled
from faircl.loading.step_dataset import StepDataset
from faircl.loading.windows import PackedWindows
from faircl.loading.worker_errors import unwrap_user_errors
from faircl.parallel import available_cores
from faircl.progress import Reporter, SilentReporter
from faircl.stop_signals import ignore_stop_signals


def train_loader(
    dataset: StepDataset, batches: BatchOrder, workers: int, pin: bool = False, reporter: Reporter | None = None
) -> Iterator[PackedBatch | PackedWindows]:
    """Yield this process's part of all batches of a step; the reporter is told of workers that do not answer."""
    import_module("torchvision.io")  # decodes JPEGs; imported before the workers are forked, so that they share it
    workers = min(workers, available_cores())  # the batches do not depend on the number of workers
    fork = workers > 0 and sys.platform == "linux"  # forked workers share the parent's memory without a copy
    ring = SharedRing(workers, batches.items * dataset.item_bytes) if fork else None
    collate = PackedWindows.collate if dataset.resample_on_device else PackedBatch.collate
    loader: Iterable[PackedBatch | PackedWindows] = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=partial(collate, ring=ring),
        pin_memory=pin,
        worker_init_fn=ignore_stop_signals,
        multiprocessing_context="fork" if fork else None,
    )
    for batch in unwrap_user_errors(say_if_stalled(loader, reporter or SilentReporter())):
        yield batch.copy_from_ring()  # a pinned batch is a copy already
