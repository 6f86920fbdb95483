"""Timing on a CPU or a GPU: clocks, peak memory, and reasons why a size cannot be computed."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

import torch

from faircl import kernels
from faircl.errors import UserError

WARMUP_ROUNDS = 2
"""Rounds that are not timed: kernels compile, and memory is allocated."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class BenchRow:
    """Base of the rows of all benchmarks."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)


def check_rounds(rounds: int) -> None:
    """Raise a UserError unless there is a round to time."""
    if rounds < 1:
        raise UserError(f"--rounds is {rounds}, expected at least 1; give the number of rounds to take the median of.")


def benchmark_device() -> torch.device:
    """Return the current GPU, or the CPU if there is none."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


class Stopwatch:
    """Lap times: of CUDA events on a GPU, of the system's clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.events: list[torch.cuda.Event] = []
        self.seconds: list[float] = []

    def mark(self) -> None:
        """End a lap and begin the next."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self.events.append(event)
        else:
            self.seconds.append(time.perf_counter())

    def laps(self) -> list[float]:
        """Wait for the device and return the milliseconds of every lap."""
        synchronize(self.device)
        if self.events:
            return [a.elapsed_time(b) for a, b in zip(self.events, self.events[1:], strict=False)]
        return [1e3 * (b - a) for a, b in zip(self.seconds, self.seconds[1:], strict=False)]


class Timed(NamedTuple):
    """Milliseconds of every lap of every round, and peak bytes allocated by a round (None on a CPU)."""

    rounds: list[list[float]]
    extra: int | None

    @property
    def milliseconds(self) -> float:
        """Median over rounds of the sum of all laps."""
        return statistics.median(sum(laps) for laps in self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """Fastest and slowest round."""
        totals = [sum(laps) for laps in self.rounds]
        return min(totals), max(totals)

    @property
    def extra_gib(self) -> float | None:
        """Extra memory in GiB."""
        return None if self.extra is None else self.extra / 2**30

    def lap(self, number: int) -> float:
        """Median over rounds of one lap."""
        return statistics.median(laps[number] for laps in self.rounds)


def measure(work: Callable[[Stopwatch], Result], device: torch.device, rounds: int) -> tuple[Timed, Result]:
    """Time ``work``, which may mark laps on the stopwatch; return the times and the last result."""
    laps: list[list[float]] = []
    extra: int | None = None
    result: Result | None = None
    for number in range(WARMUP_ROUNDS + rounds):
        result = None  # frees the memory of the previous result
        synchronize(device)
        before = _reset_peak(device)
        watch = Stopwatch(device)
        watch.mark()
        result = work(watch)
        watch.mark()
        if number >= WARMUP_ROUNDS:
            laps.append(watch.laps())
        extra = None if before is None else torch.cuda.max_memory_allocated(device) - before
    assert result is not None
    return Timed(laps, extra), result


def speedup(baseline: float | None, milliseconds: float | None) -> float | None:
    """Return how many times faster than the baseline; None if either was not timed."""
    return None if baseline is None or milliseconds is None else baseline / milliseconds


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def synchronized_time(device: torch.device) -> float:
    """Wait for the device and return the clock in seconds."""
    synchronize(device)
    return time.perf_counter()


def free_memory(device: torch.device) -> None:
    """Collect garbage and return a GPU's cached memory, so that every measurement starts in the same state."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def failure_reason(error: BaseException) -> str:
    """Return why a problem of this size failed; raise the error again if its cause is not the size."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
        return "out of memory"
    if "INT_MAX" in text or "32-bit ind" in text:
        return "too large for torch"
    raise error


def kernels_note(device: torch.device) -> str:
    """Return a note if a GPU does not use the kernels, because it is too old or they are switched off."""
    unused = device.type == "cuda" and not kernels.usable(torch.empty(0, device=device))
    return "without kernels" if unused else ""


def _reset_peak(device: torch.device) -> int | None:
    """Reset the peak memory of a GPU; return the bytes allocated now."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
