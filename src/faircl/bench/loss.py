"""Timing of cross-entropy at full resolution from a network's small logits, forward and backward.

Three ways to the same number: interpolate and take the cross-entropy, as most training code does; the same image by
image; and the loss that training uses here. Logits and labels are random and already on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.bench.timing import (
    MapSize,
    Stopwatch,
    Timed,
    check_rounds,
    measure,
    random_labels,
    random_logits,
    release,
    timed_device,
    why_not,
    without_kernels,
)
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.losses.cross_entropy import upsampled_cross_entropy, valid_mean
from faircl.losses.pixel_scores import pixel_scores_per_image
from faircl.progress import Reporter

Loss = Callable[[Tensor, Tensor], Tensor]
PEER, BY_IMAGE, FUSED = "interpolate + cross_entropy", "image by image", "fused"
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
EXPONENTIALS = 16
"""Exponentials per clock and multiprocessor, assumed for every GPU: that of NVIDIA's from Volta to Hopper."""
COPIED = 2**30
"""Bytes of the tensor whose copies tell the bandwidth."""


@dataclass(frozen=True)
class LossOptions:
    """How losses are timed: type of the logits, rounds, comparison with float64, order of the logits in memory."""

    precision: str = "bf16"
    rounds: int = 10
    exact: bool = True
    channels_last: bool = False

    def __post_init__(self) -> None:
        check_rounds(self.rounds)
        if self.precision not in PRECISIONS:
            raise UserError(f"--precision is '{self.precision}', expected one of {', '.join(PRECISIONS)}; choose one.")


@dataclass(frozen=True)
class LossCost:
    """What one loss costs and how exact it is; times are medians over rounds, ``ratio`` is the peer's time to its own.

    ``extra_gib``: largest memory in use beyond logits and labels, the gradient among it. ``loss_error``: absolute.
    ``gradient_error``: ‖g − g₆₄‖ / ‖g₆₄‖ of the gradient in the logits' own type; ``gradient_error_fp32`` before it is
    rounded to that type. ``repeatable``: whether the gradient comes out the same bit for bit. ``roofline_ms``: the
    least time on this GPU, see ``roofline``; the share is that of the time taken. ``note``: why numbers are missing.
    """

    loss: str
    classes: int
    size: int
    stride: int
    batch: int
    milliseconds: float | None = None
    forward_milliseconds: float | None = None
    backward_milliseconds: float | None = None
    spread: tuple[float, float] | None = None
    extra_gib: float | None = None
    ratio: float | None = None
    loss_error: float | None = None
    gradient_error: float | None = None
    gradient_error_fp32: float | None = None
    repeatable: bool | None = None
    roofline_ms: float | None = None
    roofline_share: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the numbers."""
        return asdict(self)


class DeviceSpeed(NamedTuple):
    """Bytes per second that copies reach, and exponentials per second; None where they are unknown."""

    bandwidth: float | None
    exponentials: float | None


class Errors(NamedTuple):
    """Differences to float64, and whether two gradients were the same."""

    loss: float | None = None
    gradient: float | None = None
    gradient_fp32: float | None = None
    repeatable: bool | None = None


class TooLarge(RuntimeError):
    """More numbers than 32 bits can count."""

    def __init__(self) -> None:
        super().__init__("torch needs 32-bit indices here")


def peer(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy as most training code has it: a batch of logits at full resolution and in full precision.

    Some of torch's kernels count in 32 bits, and do not notice when these run out.
    """
    if target.numel() * logits.shape[1] >= 2**31:
        raise TooLarge
    large = F.interpolate(logits.float(), target.shape[-2:], mode="bilinear", align_corners=False)
    return F.cross_entropy(large, target, ignore_index=IGNORE)


def by_image(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy by way of one image's logits at a time."""
    lse, own = pixel_scores_per_image(logits, target)
    return valid_mean((lse - own).where(target != IGNORE, 0.0), target)


LOSSES: dict[str, Loss] = {PEER: peer, BY_IMAGE: by_image, FUSED: upsampled_cross_entropy}


def bench_loss(
    sizes: Sequence[MapSize], options: LossOptions, reporter: Reporter
) -> tuple[list[LossCost], DeviceSpeed]:
    """Time every loss at every size; return the rows and what the device can do."""
    device = timed_device()
    speed = device_speed(device)
    rows: list[LossCost] = []
    with reporter.task("timing losses", len(sizes) * len(LOSSES)) as task:
        for size in sizes:
            peer_milliseconds: float | None = None
            exact = _Exact(size, options, device)
            for name in LOSSES:
                row = _cost(name, size, options, device, exact, peer_milliseconds, speed)
                peer_milliseconds = row.milliseconds if name == PEER else peer_milliseconds
                rows.append(row)
                taken = row.note if row.milliseconds is None else f"{row.milliseconds:.2f} ms"
                task.advance(f"{size.words}: {name} {taken}")
    return rows, speed


def roofline(size: MapSize, bytes_each: int, speed: DeviceSpeed) -> float | None:
    """Return the milliseconds below which a forward and backward pass cannot go; None where the device is unknown.

        max( (logits read + labels read + gradient written) / bandwidth,  2·B·H·W·C / exponentials per second )

    Either pass takes the exponential of every channel at every pixel, on the units that are there for it.
    """
    if speed.bandwidth is None or speed.exponentials is None:
        return None
    batch, classes, high, wide = size.shape
    moved = 2 * batch * classes * high * wide * bytes_each + 8 * size.pixels
    return 1e3 * max(moved / speed.bandwidth, 2 * size.pixels * classes / speed.exponentials)


def device_speed(device: torch.device) -> DeviceSpeed:
    """Measure a GPU's bandwidth by copies, which read and write; exponentials follow from its highest clock."""
    if device.type != "cuda":
        return DeviceSpeed(None, None)
    free, _ = torch.cuda.mem_get_info(device)
    count = 512 * max(1, min(COPIED, free // 8) // 512)
    source, copy = torch.zeros((2, count), dtype=torch.uint8, device=device)
    timed, _ = measure(lambda _: copy.copy_(source), device, 10)
    clock = _clock(device)
    units = EXPONENTIALS * torch.cuda.get_device_properties(device).multi_processor_count
    return DeviceSpeed(2e3 * count / timed.milliseconds, None if clock is None else units * clock)


def _clock(device: torch.device) -> float | None:
    """Highest clock of a GPU in hertz, or its present one; None where torch cannot tell."""
    highest = getattr(torch.cuda.get_device_properties(device), "clock_rate", 0)  # kHz; newer torch alone has it
    if highest:
        return 1e3 * float(highest)
    try:
        return 1e6 * float(torch.cuda.clock_rate(device)) or None
    except (ImportError, RuntimeError, AttributeError):  # it asks NVIDIA's management library, which may be absent
        return None


class _Exact:
    """Loss and gradient in float64 of one size, computed when they are first asked for."""

    def __init__(self, size: MapSize, options: LossOptions, device: torch.device) -> None:
        self.size, self.options, self.device = size, options, device
        self.found: tuple[float, Tensor] | None = None

    def get(self) -> tuple[float, Tensor]:
        if self.found is None:
            logits = random_logits(self.size, PRECISIONS[self.options.precision], self.device)
            self.found = reference(logits, random_labels(self.size, self.device))
        return self.found


def reference(logits: Tensor, target: Tensor) -> tuple[float, Tensor]:
    """Loss and gradient (B, C, h, w) in float64, image by image; the gradient is in the host's memory.

    So rows are timed with all of the device's to themselves.
    """
    valid = (target != IGNORE).sum()
    total = 0.0
    gradients: list[Tensor] = []
    for one, labels in zip(torch.split(logits, 1), torch.split(target, 1), strict=True):
        small = one.detach().double().requires_grad_()
        large = F.interpolate(small, labels.shape[-2:], mode="bilinear", align_corners=False)
        loss = F.cross_entropy(large, labels, ignore_index=IGNORE, reduction="sum") / valid
        total += float(loss.detach())
        gradients.append(torch.autograd.grad(loss, small)[0].cpu())
        del large, loss
    return total, torch.cat(gradients)


def _cost(
    name: str,
    size: MapSize,
    options: LossOptions,
    device: torch.device,
    exact: _Exact,
    peer_milliseconds: float | None,
    speed: DeviceSpeed,
) -> LossCost:
    row = LossCost(name, size.classes, size.size, size.stride, size.batch)
    release(device)
    try:
        timed, errors, note = _measured(LOSSES[name], size, options, device, exact)
    except (RuntimeError, MemoryError) as error:
        return replace(row, note=why_not(error))
    finally:
        release(device)
    milliseconds = timed.milliseconds
    base = milliseconds if name == PEER else peer_milliseconds
    least = roofline(size, PRECISIONS[options.precision].itemsize, speed) if name == FUSED else None
    return replace(
        row,
        milliseconds=milliseconds,
        forward_milliseconds=timed.lap(0),
        backward_milliseconds=timed.lap(1),
        spread=timed.spread,
        extra_gib=timed.extra_gib,
        ratio=None if base is None else base / milliseconds,
        loss_error=errors.loss,
        gradient_error=errors.gradient,
        gradient_error_fp32=errors.gradient_fp32,
        repeatable=errors.repeatable,
        roofline_ms=least,
        roofline_share=None if least is None else least / milliseconds,
        note=note or (without_kernels(device) if name == FUSED else ""),
    )


def _measured(
    loss: Loss, size: MapSize, options: LossOptions, device: torch.device, exact: _Exact
) -> tuple[Timed, Errors, str]:
    """Time a loss; then compare it with float64 and with itself, as far as memory allows."""
    logits = random_logits(size, PRECISIONS[options.precision], device, options.channels_last).requires_grad_()
    target = random_labels(size, device)
    # A power of two, as mixed precision scales losses: fp16 would lose gradients as small as 1 / pixels.
    scale = 2.0 ** (size.batch * size.shape[2] * size.shape[3]).bit_length()

    timed, (value, gradient) = measure(
        lambda watch: _both_ways(loss, logits, target, scale, watch), device, options.rounds
    )
    found = Errors()
    try:
        _, again = _both_ways(loss, logits, target, scale)
        found = Errors(repeatable=bool(torch.equal(gradient, again)))
        if not options.exact:
            return timed, found, ""
        exact_value, exact_gradient = exact.get()
        own_error = _relative(gradient, scale, exact_gradient)
        found = found._replace(loss=abs(float(value) - exact_value), gradient=own_error, gradient_fp32=own_error)
        if options.precision != "fp32":
            del gradient, again
            found = found._replace(gradient_fp32=None)
            _, full = _both_ways(loss, logits.detach().float().requires_grad_(), target, scale)
            found = found._replace(gradient_fp32=_relative(full, scale, exact_gradient))
    except (RuntimeError, MemoryError) as error:
        return timed, found, f"errors unknown: {why_not(error)}"
    return timed, found, ""


def _both_ways(
    loss: Loss, logits: Tensor, target: Tensor, scale: float, watch: Stopwatch | None = None
) -> tuple[Tensor, Tensor]:
    """Loss, and gradient of so many times the loss."""
    value = loss(logits, target)
    if watch is not None:
        watch.mark()
    (gradient,) = torch.autograd.grad(value, logits, torch.full_like(value, scale))
    return value.detach(), gradient


def _relative(gradient: Tensor, scale: float, exact: Tensor) -> float:
    """‖g / scale − g₆₄‖ / ‖g₆₄‖, image by image, so that no copy of a batch in float64 need exist on the device."""
    pairs = zip(torch.split(gradient.detach(), 1), torch.split(exact, 1), strict=True)
    parts = [float((one.double() / scale - right.to(one.device)).square().sum()) for one, right in pairs]
    norm = float(exact.norm())
    return math.fsum(parts) ** 0.5 / norm if norm > 0 else 0.0
