"""The least time of cross-entropy on a GPU, from its memory bandwidth and its rate of exponentials."""

from __future__ import annotations

from typing import NamedTuple

import torch

from faircl.bench.problem_size import ProblemSize
from faircl.bench.timing import measure

EXPONENTIALS_PER_CLOCK = 16
"""Exponentials per clock and multiprocessor; the rate of NVIDIA GPUs from Volta to Hopper, assumed for all."""
COPY_BYTES = 2**30
"""Size of the tensor whose copies measure the bandwidth."""


class DeviceSpeed(NamedTuple):
    """Bytes and exponentials per second; None if unknown."""

    bandwidth: float | None
    exponentials: float | None


def roofline(size: ProblemSize, bytes_each: int, speed: DeviceSpeed) -> float | None:
    """Return the least milliseconds of a forward and backward pass; None if the speed of the device is unknown.

        max( (logits read + labels read + gradient written) / bandwidth,  2·B·H·W·C / exponentials per second )

    ``bytes_each`` is the size of a logit. Both passes compute the exponential of every channel at every pixel.
    """
    if speed.bandwidth is None or speed.exponentials is None:
        return None
    batch, classes, height, width = size.shape
    moved = 2 * batch * classes * height * width * bytes_each + 8 * size.pixels
    return 1e3 * max(moved / speed.bandwidth, 2 * size.pixels * classes / speed.exponentials)


def device_speed(device: torch.device) -> DeviceSpeed:
    """Measure a GPU's bandwidth by copies, which read and write; compute its exponentials from the highest clock."""
    if device.type != "cuda":
        return DeviceSpeed(None, None)
    free, _ = torch.cuda.mem_get_info(device)
    count = 512 * max(1, min(COPY_BYTES, free // 8) // 512)
    source, copy = torch.zeros((2, count), dtype=torch.uint8, device=device)
    timed, _ = measure(lambda _: copy.copy_(source), device, 10)
    clock = _clock(device)
    per_clock = EXPONENTIALS_PER_CLOCK * torch.cuda.get_device_properties(device).multi_processor_count
    return DeviceSpeed(2e3 * count / timed.milliseconds, None if clock is None else per_clock * clock)


def _clock(device: torch.device) -> float | None:
    """Return the highest clock of a GPU in hertz, else its current clock; None if torch knows neither."""
    highest = getattr(torch.cuda.get_device_properties(device), "clock_rate", 0)  # kHz; only in newer torch
    if highest:
        return 1e3 * float(highest)
    try:
        return 1e6 * float(torch.cuda.clock_rate(device)) or None
    except (ImportError, RuntimeError, AttributeError):  # needs NVIDIA's management library
        return None
