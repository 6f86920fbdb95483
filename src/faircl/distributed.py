"""Communication between the processes of a run; without other processes nothing is sent.

Means are global: a loss over valid pixels is the local sum times the number of processes, divided by the all-reduced
count, so that averaging gradients over N processes gives the gradient of one process with all pixels.

torchrun starts the processes and describes them in environment variables, which ``init_process_group`` reads. Only rank
0 writes files and prints.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from faircl.errors import UserError
from faircl.parallel import launched_world_size
from faircl.precision import at_least_float32_dtype

T = TypeVar("T")

TIMEOUT = timedelta(hours=2)
"""Timeout of collectives; the others wait while rank 0 reads a large data set or writes a report."""
FAILURE_WAIT = 3.0
"""Seconds that a failing process waits for the errors of the others."""
THREADS_WAIT = 0.2
"""Seconds that gloo's threads get to free the tensors of the last collectives before the interpreter ends."""

_TORCHRUN_VARIABLES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_store: Any = None  # key-value store of the rendezvous; it still works after a collective has failed


def world_size() -> int:
    """Return the number of processes in the process group; 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process; 0 without a process group."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def local_world_size() -> int:
    """Return the number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", str(launched_world_size())))


def init_process_group() -> None:
    """Initialise the process group if torchrun has started several processes; further calls do nothing."""
    global _store
    if launched_world_size() == 1 or not dist.is_available() or dist.is_initialized():
        return
    missing = [name for name in _TORCHRUN_VARIABLES if name not in os.environ]
    if missing:
        raise UserError(
            f"The environment says WORLD_SIZE is {launched_world_size()}, but not {', '.join(missing)}; start several "
            "processes with torchrun, or unset WORLD_SIZE."
        )
    from torch.distributed.rendezvous import rendezvous

    _store, own, size = next(rendezvous("env://"))
    # Objects and CPU tensors are sent by gloo even if tensors on GPUs are sent by NCCL.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=_store, rank=own, world_size=size, timeout=TIMEOUT)
    atexit.register(destroy_process_group)


def destroy_process_group() -> None:
    """Destroy the process group, if there is one."""
    global _store
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
        # DDP keeps gloo's threads running. To free a tensor they need the interpreter's lock, which a sleep releases; a
        # thread that still waits for it when the interpreter ends aborts the process, after all work was done.
        time.sleep(THREADS_WAIT)
    _store = None


def rank_slice(items: Sequence[T]) -> Sequence[T]:
    """Return this process's part of items that all processes hold: every N-th one."""
    return items[rank() :: world_size()]


@torch.no_grad()
def global_sum(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, detached."""
    value = value.detach()
    if world_size() == 1:
        return value
    value = value.clone()
    dist.all_reduce(value)
    return value


def global_max(*values: int) -> list[int]:
    """Return the largest of each value over all processes."""
    if world_size() == 1:
        return list(values)
    largest = torch.tensor(values)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    found: list[int] = largest.tolist()
    return found


def global_mean(total: Tensor, count: Tensor | float) -> Tensor:
    """Return total / count with the count summed over processes; 0 for a count of 0.

    Shapes: total () with gradient, count (). The gradient, averaged over processes as DDP does, is that of the mean
    over all processes' elements.
    """
    exact = at_least_float32_dtype(total)  # float16 cannot represent large counts
    if not isinstance(count, Tensor):
        count = torch.full((), count, dtype=exact, device=total.device)  # a copy from the CPU would synchronise
    count = global_sum(count.to(total.device, exact))
    return total * (world_size() / count.clamp_min(1.0))


def global_sum_with_grad(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, with gradient.

    The other processes' part is a constant here; the local gradient is scaled by the number of processes, so that the
    average over processes is the gradient of the sum.
    """
    count = world_size()
    return value if count == 1 else global_sum(value) + count * (value - value.detach())


@torch.no_grad()
def all_gather(value: Tensor) -> Tensor:
    """Return the tensors of all processes, stacked by rank: (…) to (N, …). Shapes must agree."""
    if world_size() == 1:
        return value.detach()[None]
    parts = [torch.empty_like(value) for _ in range(world_size())]
    dist.all_gather(parts, value.detach().contiguous())
    return torch.stack(parts)


def all_gather_objects(value: T) -> list[T]:
    """Return the objects of all processes, by rank."""
    if world_size() == 1:
        return [value]
    parts: list[Any] = [None] * world_size()
    dist.all_gather_object(parts, value)
    return parts


@torch.no_grad()
def broadcast_buffers(module: nn.Module) -> None:
    """Copy the buffers of rank 0 to all processes: BatchNorm's running statistics may differ."""
    if world_size() > 1:
        for buffer in module.buffers():
            dist.broadcast(buffer, 0)


@contextmanager
def shared_buffers(module: nn.Module) -> Iterator[None]:
    """Give all processes the buffers of rank 0 in a context; afterwards each has its own again."""
    own = [(buffer, buffer.clone()) for buffer in module.buffers()] if world_size() > 1 else []
    broadcast_buffers(module)
    try:
        yield
    finally:
        for buffer, value in own:
            buffer.copy_(value)


def on_rank_zero(work: Callable[[], T]) -> T:
    """Run a function on rank 0 only and return its result on all ranks; a UserError is raised on all.

    Any other error is raised as it is on rank 0 and as a RuntimeError on the others, so that none of them waits.
    """
    if world_size() == 1:
        return work()
    result: Any = None
    error: Exception | None = None
    if rank() == 0:
        try:
            result = work()
        except Exception as found:
            error = found
    by_user = isinstance(error, UserError)
    shared = [result, None if error is None else str(error), by_user]
    dist.broadcast_object_list(shared, 0)
    result, message, by_user = shared
    if error is not None:
        raise error
    if message is not None:
        raise UserError(message) if by_user else RuntimeError(f"process 0 failed: {message}")
    done: T = result
    return done


def report_failure(text: str, write: Callable[[str], None]) -> None:
    """Print why this process fails, once for all processes that fail for the same reason.

    Rank 0 prints its reason; another process prints its own, with its rank, only if it differs.
    """
    if _store is None:
        write(text)
        return
    own = rank()
    if own == 0:  # first of all: once one process exits, torchrun ends the others
        write(text)
    _store.set(_key(own), text)
    if own == 0:
        _wait_for_keys(all, *(_key(number, "acknowledged") for number in range(1, world_size())))
        return
    if not (_wait_for_keys(all, _key(0)) and _store.get(_key(0)).decode() == text):
        write(f"process {own}: {text}")
    _store.set(_key(own, "acknowledged"), "")


def another_process_failed() -> bool:
    """Whether another process has failed first, so that the error of this one is a consequence."""
    if _store is None:
        return False
    others = [number for number in range(world_size()) if number != rank()]
    try:
        return _wait_for_keys(any, *map(_key, others))
    except RuntimeError:  # the process that held the store has exited
        return True


def _wait_for_keys(which: Callable[[Iterable[bool]], bool], *keys: str) -> bool:
    """Wait up to FAILURE_WAIT seconds until all or any of the keys are in the store; return whether they are."""
    end = time.monotonic() + FAILURE_WAIT
    while not (found := which(_store.check([key]) for key in keys)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _key(process: int, event: str = "failed") -> str:
    return f"faircl/process {process} {event}"
