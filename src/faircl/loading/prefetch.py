"""Prefetching: the next batch is copied to the GPU while the current one is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from faircl.loading.batch import Batch, LoaderBatch


def prefetch_to_device(batches: Iterable[LoaderBatch], device: torch.device) -> Iterator[Batch]:
    """Move batches to a device and convert them there.

    On a GPU both run on a separate stream. The next batch is requested as soon as the kernels of the current one are
    queued, so its copy from pinned memory and its conversion overlap with them.
    """
    if device.type != "cuda":
        for batch in batches:
            yield batch.to(device).to_batch()
        return
    copy_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for batch in batches:
        with torch.cuda.stream(copy_stream):
            ready = batch.to(device).to_batch()
        current = torch.cuda.current_stream(device)
        current.wait_stream(copy_stream)
        for tensor in ready:
            if tensor is not None:
                tensor.record_stream(current)  # keeps the allocator from reusing its memory too early
        yield ready
