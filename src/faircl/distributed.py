"""What the processes of a run do together; all of it costs nothing when there is only one.

Means in this project are global: a loss over valid pixels is the local sum times the number of processes over the
all-reduced count, so that averaging gradients over N processes gives exactly the gradient of one.

torchrun starts the processes and names them in the environment; ``join`` makes them meet. Process 0 alone reads what
must be read once, writes files and speaks.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from faircl.errors import UserError

T = TypeVar("T")

TIMEOUT = timedelta(hours=2)
"""How long a process waits for the others: process 0 may read a large data set or write a report meanwhile."""
FAILURE_WAIT = 3.0
"""Seconds that a process that stops waits to hear whether the others stop for the same reason."""

_TORCHRUN_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)  # what torchrun tells a process
_store: Any = None  # where the processes met; it outlives a broken connection between them


def world_size() -> int:
    """Return the number of processes in the run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def launched_world_size() -> int:
    """Return the number of processes that torchrun has started, whether or not they have met."""
    found = os.environ.get("WORLD_SIZE", "1")
    if not found.isdecimal() or int(found) < 1:
        raise UserError(f"The environment says WORLD_SIZE is '{found}'; start processes with torchrun, or unset it.")
    return int(found)


def local_world_size() -> int:
    """Return how many of them are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", str(launched_world_size())))


def init_process_group() -> None:
    """Meet the other processes, if torchrun has started any; once is enough."""
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
    # What is in the CPU's memory goes by gloo even where tensors on GPUs go by NCCL.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=_store, rank=own, world_size=size, timeout=TIMEOUT)
    atexit.register(destroy_process_group)


def destroy_process_group() -> None:
    """Part from the other processes at the end of the work."""
    global _store
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
    _store = None


def rank_slice(items: Sequence[T]) -> Sequence[T]:
    """Return this process's part of what all of them hold: every N-th item."""
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


def global_mean(total: Tensor, count: Tensor | float) -> Tensor:
    """Return total / count with the count summed over processes; nothing counted gives zero, not NaN.

    Shapes: total () with gradient, count (). The gradient, averaged over processes as DDP does, is that of the mean
    over all processes' elements.
    """
    exact = torch.promote_types(total.dtype, torch.float32)  # float16 cannot count the pixels of an image
    if not isinstance(count, Tensor):
        count = torch.full((), count, dtype=exact, device=total.device)  # copied there, it would be waited for
    count = global_sum(count.to(total.device, exact))
    return total * (world_size() / count.clamp_min(1.0))


def global_sum_with_grad(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, with gradient.

    The other processes' share is a constant here; scaling the local gradient makes their average the global one.
    """
    count = world_size()
    return value if count == 1 else global_sum(value) + count * (value - value.detach())


@torch.no_grad()
def all_gather(value: Tensor) -> Tensor:
    """Return a tensor of every process, stacked in their order: (…) to (N, …). Shapes must agree."""
    if world_size() == 1:
        return value.detach()[None]
    parts = [torch.empty_like(value) for _ in range(world_size())]
    dist.all_gather(parts, value.detach().contiguous())
    return torch.stack(parts)


def all_gather_objects(value: T) -> list[T]:
    """Return an object of every process, in their order."""
    if world_size() == 1:
        return [value]
    parts: list[Any] = [None] * world_size()
    dist.all_gather_object(parts, value)
    return parts


@torch.no_grad()
def broadcast_buffers(module: nn.Module) -> None:
    """Give all processes the buffers of process 0: BatchNorm's running statistics may have drifted apart."""
    if world_size() > 1:
        for buffer in module.buffers():
            dist.broadcast(buffer, 0)


def on_rank_zero(work: Callable[[], T]) -> T:
    """Do something on process 0 alone and return its result on all; a UserError there is raised on all.

    Any other error is raised there, and elsewhere as a RuntimeError, so that nobody waits.
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
    known = isinstance(error, UserError)
    shared = [result, None if error is None else str(error), known]
    dist.broadcast_object_list(shared, 0)
    result, words, known = shared
    if error is not None:
        raise error
    if words is not None:
        raise UserError(words) if known else RuntimeError(f"process 0 failed: {words}")
    done: T = result
    return done


def report_failure(text: str, say: Callable[[str], None]) -> None:
    """Say why this process stops, once for all processes that stop for the same reason.

    Process 0 speaks for them; another speaks, with its number, only if process 0 does not say the same.
    """
    if _store is None:
        say(text)
        return
    own = rank()
    if own == 0:  # before the others know: once one has left, torchrun ends all
        say(text)
    _store.set(_key(own), text)
    if own == 0:
        _wait_for_keys(all, *(_key(number, "has heard") for number in range(1, world_size())))
        return
    if not (_wait_for_keys(all, _key(0)) and _store.get(_key(0)).decode() == text):
        say(f"process {own}: {text}")
    _store.set(_key(own, "has heard"), "")


def another_process_failed() -> bool:
    """Whether another process has said its last words: what fails here now is but the consequence."""
    if _store is None:
        return False
    others = [number for number in range(world_size()) if number != rank()]
    try:
        return _wait_for_keys(any, *map(_key, others))
    except RuntimeError:  # the store has gone with the process that held it
        return True


def _wait_for_keys(which: Callable[[Iterable[bool]], bool], *keys: str) -> bool:
    """Wait until all or any of some keys are in the store, but not for long; return whether they are."""
    end = time.monotonic() + FAILURE_WAIT
    while not (found := which(_store.check([key]) for key in keys)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _key(number: int, what: str = "stops") -> str:
    return f"faircl/process {number} {what}"
