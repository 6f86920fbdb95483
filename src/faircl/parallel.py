"""CPU cores and threads that this process may use, and the processes that torchrun has started."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from faircl.errors import UserError

T = TypeVar("T")
R = TypeVar("R")


def launched_world_size() -> int:
    """Return the number of processes that torchrun has started, also before the process group exists."""
    found = os.environ.get("WORLD_SIZE", "1")
    if not found.isdecimal() or int(found) < 1:
        raise UserError(f"The environment says WORLD_SIZE is '{found}'; start processes with torchrun, or unset it.")
    return int(found)


def available_cores() -> int:
    """Return the number of cores this process may use, which a container or taskset may limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def thread_pool() -> Iterator[ThreadPoolExecutor]:
    """Open a pool with one thread per available core; on an error or Ctrl-C, work that has not begun is cancelled."""
    pool = ThreadPoolExecutor(available_cores())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def read_ahead(items: Iterable[T], read: Callable[[T], R], ahead: int) -> Iterator[R]:
    """Yield ``read(item)`` in order; threads read up to ``ahead`` items before they are asked for."""
    if ahead == 0:
        yield from map(read, items)
        return
    rest = iter(items)
    with thread_pool() as pool:
        waiting: deque[Future[R]] = deque(pool.submit(read, item) for item in islice(rest, ahead))
        while waiting:
            waiting.extend(pool.submit(read, item) for item in islice(rest, 1))
            yield waiting.popleft().result()
