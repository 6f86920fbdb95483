"""What timings of single operations share: sizes, random logits and labels, clock and memory, words for what failed."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from faircl import kernels
from faircl.errors import UserError
from faircl.labels import IGNORE, UNLABELLED

WARM_UP = 2
"""Rounds before the timed ones: kernels compile, and memory is taken from the system."""
IGNORED = 0.05
"""Share of pixels whose label is IGNORE."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class ProblemSize:
    """What is upsampled: images of ``batch``, each ``size`` pixels a side, logits every ``stride`` pixels."""

    classes: int = 151
    size: int = 512
    stride: int = 16
    batch: int = 24

    def __post_init__(self) -> None:
        if not 2 <= self.classes < UNLABELLED:
            raise UserError(f"--classes is {self.classes}, expected 2 to {UNLABELLED - 1}; background counts as one.")
        if self.size < 1:
            raise UserError(f"--size is {self.size}, expected at least 1; give the side of an image in pixels.")
        if self.batch < 1:
            raise UserError(f"--batch is {self.batch}, expected at least 1; give the images of a batch.")
        if not 1 <= self.stride <= self.size:
            raise UserError(
                f"--stride is {self.stride}, expected 1 to the side of an image, {self.size}; give the pixels from one "
                "logit to the next."
            )

    @property
    def pixels(self) -> int:
        """Pixels of all images."""
        return self.batch * self.size**2

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the logits, (B, C, h, w)."""
        side = -(-self.size // self.stride)
        return self.batch, self.classes, side, side

    @property
    def words(self) -> str:
        """Return the size for progress and titles."""
        return f"{self.classes} classes, {self.size}×{self.size}, stride {self.stride}"


def size_grid(classes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], batch: int) -> list[ProblemSize]:
    """Return all combinations, each once."""
    made = (ProblemSize(count, side, stride, batch) for stride, side, count in product(strides, sizes, classes))
    return list(dict.fromkeys(made))


def check_rounds(rounds: int) -> None:
    """Raise an error where nothing would be timed."""
    if rounds < 1:
        raise UserError(f"--rounds is {rounds}, expected at least 1; give the rounds to take the median of.")


def benchmark_device() -> torch.device:
    """Return the GPU, or the CPU where there is none."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def random_logits(size: ProblemSize, dtype: torch.dtype, device: torch.device, channels_last: bool = False) -> Tensor:
    """Draw logits (B, C, h, w) as spread as those of a network that has learned something."""
    draw = torch.Generator(device).manual_seed(0)
    made = (3 * torch.randn(size.shape, generator=draw, device=device)).to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if channels_last else made


def random_labels(size: ProblemSize, device: torch.device) -> Tensor:
    """Draw labels (B, H, W), some of them IGNORE."""
    draw = torch.Generator(device).manual_seed(1)
    shape = (size.batch, size.size, size.size)
    labels = torch.randint(size.classes, shape, generator=draw, device=device)
    labels.masked_fill_(torch.rand(shape, generator=draw, device=device) < IGNORED, IGNORE)
    labels[0, 0, 0] = 0  # a mean over no pixel is none
    return labels


class Stopwatch:
    """Times between marks: events on a GPU, which its own clock stamps, the system's clock elsewhere."""

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
        """Milliseconds of every lap, once all work is done."""
        wait(self.device)
        if self.events:
            return [a.elapsed_time(b) for a, b in zip(self.events, self.events[1:], strict=False)]
        return [1e3 * (b - a) for a, b in zip(self.seconds, self.seconds[1:], strict=False)]


class Timed(NamedTuple):
    """Milliseconds of the laps of every round, and bytes in use beyond what was there before (None on a CPU)."""

    rounds: list[list[float]]
    extra: int | None

    @property
    def milliseconds(self) -> float:
        """Median over rounds of all laps together."""
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
    """Time some work, which may mark laps of its own; return the last round's result too."""
    laps: list[list[float]] = []
    extra: int | None = None
    found: Result | None = None
    for number in range(WARM_UP + rounds):
        found = None  # a result of the round before is not what a round needs
        wait(device)
        before = _reset_peak(device)
        watch = Stopwatch(device)
        watch.mark()
        found = work(watch)
        watch.mark()
        if number >= WARM_UP:
            laps.append(watch.laps())
        extra = None if before is None else torch.cuda.max_memory_allocated(device) - before
    assert found is not None
    return Timed(laps, extra), found


def wait(device: torch.device) -> None:
    """Wait until a device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Give a GPU's memory that nothing uses back, so that what is timed next starts like what was timed before."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def failure_reason(error: BaseException) -> str:
    """Return why something of this size cannot be computed; raise errors again that do not come from its size."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
        return "out of memory"
    if "INT_MAX" in text or "32-bit ind" in text:
        return "too large for torch"
    raise error


def without_kernels(device: torch.device) -> str:
    """Return a note where a GPU takes the plain paths: it is too old, or kernels are switched off."""
    plain = device.type == "cuda" and not kernels.usable(torch.empty(0, device=device))
    return "without kernels" if plain else ""


def _reset_peak(device: torch.device) -> int | None:
    """Bytes in use now, from which the peak is measured."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
