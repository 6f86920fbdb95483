"""Prefetching: the next batch is copied to the GPU while the current one is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from faircl.loading.batch import Batch, LoaderBatch
from faircl.loading.soft_labels import SoftLabels


def prefetch_to_device(
    batches: Iterable[LoaderBatch], device: torch.device, soft: SoftLabels | None = None
) -> Iterator[Batch]:
    """Move batches to a device, convert them there and add the soft labels of their windows.

    On a GPU all of it runs on a separate stream. The next batch is requested as soon as the kernels of the current one
    are queued, so its copy from pinned memory and its conversion overlap with them.
    """
    if device.type != "cuda":
        for batch in batches:
            yield _prepared(batch, device, soft)
        return
    copy_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for batch in batches:
        with torch.cuda.stream(copy_stream):
            ready = _prepared(batch, device, soft)
        current = torch.cuda.current_stream(device)
        current.wait_stream(copy_stream)
        for tensor in ready.tensors():
            tensor.record_stream(current)  # keeps the allocator from reusing its memory too early
        yield ready


def _prepared(batch: LoaderBatch, device: torch.device, soft: SoftLabels | None) -> Batch:
    ready = batch.to(device).to_batch()
    if soft is None:
        return ready
    assert ready.windows is not None, "soft labels are of fixed windows"
    return ready._replace(soft=soft.of(ready.windows, device))
