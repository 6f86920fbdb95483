"""The next batch on its way to the GPU while it works on this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from faircl.loading.batch import Batch, LoaderBatch


def prefetch_to_device(batches: Iterable[LoaderBatch], device: torch.device) -> Iterator[Batch]:
    """Bring batches to a device and prepare them there.

    On a GPU both happen in a stream of their own. A batch is asked for when the work on the one before has been handed
    to the GPU but is not done; the copy, out of pinned memory, and the preparation then run beside it.
    """
    if device.type != "cuda":
        for batch in batches:
            yield batch.to(device).prepared()
        return
    beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for batch in batches:
        with torch.cuda.stream(beside):
            ready = batch.to(device).prepared()
        current = torch.cuda.current_stream(device)
        current.wait_stream(beside)
        for tensor in ready:
            if tensor is not None:
                tensor.record_stream(current)  # its memory is not used again before the work on it is done
        yield ready
