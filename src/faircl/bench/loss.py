"""Timing of cross-entropy at full resolution from logits at network stride, forward and backward.

Three implementations of the same loss: interpolation of the whole batch with torch's cross_entropy, as in most training
code; the same image by image; and the fused loss of training. Logits and labels are random and already on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.bench import timing
from faircl.bench.problem_size import ProblemSize, random_labels, random_logits
from faircl.bench.roofline import DeviceSpeed, device_speed, roofline
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.losses.cross_entropy import upsampled_cross_entropy, valid_mean
from faircl.losses.pixel_scores import pixel_scores_per_image
from faircl.progress import Reporter

Loss = Callable[[Tensor, Tensor], Tensor]
BASELINE, BY_IMAGE, FUSED = "interpolate + cross_entropy", "image by image", "fused"
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class LossOptions:
    """How losses are timed: dtype of the logits, rounds, comparison with float64, memory format of the logits."""

    precision: str = "bf16"
    rounds: int = 10
    exact: bool = True
    channels_last: bool = False

    def __post_init__(self) -> None:
        timing.check_rounds(self.rounds)
        if self.precision not in PRECISIONS:
            raise UserError(f"--precision is '{self.precision}', expected one of {', '.join(PRECISIONS)}; choose one.")


@dataclass(frozen=True)
class LossCost(timing.BenchRow):
    """Cost and accuracy of one loss; times are medians over rounds.

    ``extra_gib``: peak memory beyond logits and labels, the gradient included. ``ratio``: the baseline's time over this
    one's. ``loss_error``: absolute. ``gradient_error``: ‖g − g₆₄‖ / ‖g₆₄‖ with g in the dtype of the logits;
    ``gradient_error_fp32``: the same with g in float32. ``repeatable``: whether two gradients are equal bit for bit.
    ``roofline_ms``: least time on this GPU, see ``roofline``; ``roofline_share``: its share of the time measured.
    ``note``: why numbers are missing.
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


class Errors(NamedTuple):
    """Errors against float64, and whether two gradients were equal."""

    loss: float | None = None
    gradient: float | None = None
    gradient_fp32: float | None = None
    repeatable: bool | None = None


class TooLarge(RuntimeError):
    """More elements than a 32-bit index can address."""

    def __init__(self) -> None:
        super().__init__("torch needs 32-bit indices here")


def interpolated_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Interpolate the logits of the whole batch in float32 and take torch's cross_entropy.

    Raises TooLarge from 2³¹ upsampled logits on: some of torch's kernels then overflow without an error.
    """
    if target.numel() * logits.shape[1] >= 2**31:
        raise TooLarge
    large = F.interpolate(logits.float(), target.shape[-2:], mode="bilinear", align_corners=False)
    return F.cross_entropy(large, target, ignore_index=IGNORE)


def cross_entropy_by_image(logits: Tensor, target: Tensor) -> Tensor:
    """Return the same, with the upsampled logits of one image at a time in memory."""
    lse, own = pixel_scores_per_image(logits, target)
    return valid_mean((lse - own).where(target != IGNORE, 0.0), target)


LOSSES: dict[str, Loss] = {
    BASELINE: interpolated_cross_entropy,
    BY_IMAGE: cross_entropy_by_image,
    FUSED: upsampled_cross_entropy,
}


def bench_loss(
    sizes: Sequence[ProblemSize], options: LossOptions, reporter: Reporter
) -> tuple[list[LossCost], DeviceSpeed]:
    """Time every loss at every size; return the rows and the speed of the device."""
    device = timing.benchmark_device()
    speed = device_speed(device)
    rows: list[LossCost] = []
    with reporter.task("timing losses", len(sizes) * len(LOSSES)) as task:
        for size in sizes:
            baseline: float | None = None
            exact = _Float64Reference(size, options, device)
            for name in LOSSES:
                row = _time_loss(name, size, options, device, exact, speed)
                baseline = row.milliseconds if name == BASELINE else baseline
                rows.append(replace(row, ratio=timing.speedup(baseline, row.milliseconds)))
                shown = row.note if row.milliseconds is None else f"{row.milliseconds:.2f} ms"
                task.advance(f"{size.label}: {name} {shown}")
    return rows, speed


class _Float64Reference:
    """Loss and gradient in float64 at one size, computed at first use."""

    def __init__(self, size: ProblemSize, options: LossOptions, device: torch.device) -> None:
        self.size, self.options, self.device = size, options, device
        self.cached: tuple[float, Tensor] | None = None

    def get(self) -> tuple[float, Tensor]:
        if self.cached is None:
            logits = random_logits(self.size, PRECISIONS[self.options.precision], self.device)
            self.cached = reference(logits, random_labels(self.size, self.device))
        return self.cached


def reference(logits: Tensor, target: Tensor) -> tuple[float, Tensor]:
    """Return loss and gradient (B, C, h, w) in float64, computed image by image.

    The gradient is on the CPU, so that it takes no device memory while losses are timed.
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


def _time_loss(
    name: str,
    size: ProblemSize,
    options: LossOptions,
    device: torch.device,
    exact: _Float64Reference,
    speed: DeviceSpeed,
) -> LossCost:
    row = LossCost(name, size.classes, size.size, size.stride, size.batch)
    timing.free_memory(device)
    try:
        timed, errors, note = _measure_loss(LOSSES[name], size, options, device, exact)
    except (RuntimeError, MemoryError) as error:
        return replace(row, note=timing.failure_reason(error))
    finally:
        timing.free_memory(device)
    least = roofline(size, PRECISIONS[options.precision].itemsize, speed) if name == FUSED else None
    return replace(
        row,
        milliseconds=timed.milliseconds,
        forward_milliseconds=timed.lap(0),
        backward_milliseconds=timed.lap(1),
        spread=timed.spread,
        extra_gib=timed.extra_gib,
        loss_error=errors.loss,
        gradient_error=errors.gradient,
        gradient_error_fp32=errors.gradient_fp32,
        repeatable=errors.repeatable,
        roofline_ms=least,
        roofline_share=None if least is None else least / timed.milliseconds,
        note=note or (timing.kernels_note(device) if name == FUSED else ""),
    )


def _measure_loss(
    loss: Loss, size: ProblemSize, options: LossOptions, device: torch.device, exact: _Float64Reference
) -> tuple[timing.Timed, Errors, str]:
    """Time a loss, then compute as many of its errors as fit in memory; the note names what did not."""
    logits = random_logits(size, PRECISIONS[options.precision], device, options.channels_last).requires_grad_()
    target = random_labels(size, device)
    # A power of two, as in loss scaling: gradients of about 1 / pixels would underflow in fp16.
    scale = 2.0 ** (size.batch * size.shape[2] * size.shape[3]).bit_length()

    timed, (value, gradient) = timing.measure(
        lambda watch: _forward_backward(loss, logits, target, scale, watch), device, options.rounds
    )
    errors = Errors()
    try:
        _, repeated = _forward_backward(loss, logits, target, scale)
        errors = Errors(repeatable=bool(torch.equal(gradient, repeated)))
        if not options.exact:
            return timed, errors, ""
        exact_value, exact_gradient = exact.get()
        error = _relative_error(gradient, scale, exact_gradient)
        errors = errors._replace(loss=abs(float(value) - exact_value), gradient=error, gradient_fp32=error)
        if options.precision != "fp32":
            del gradient, repeated
            errors = errors._replace(gradient_fp32=None)
            _, full = _forward_backward(loss, logits.detach().float().requires_grad_(), target, scale)
            errors = errors._replace(gradient_fp32=_relative_error(full, scale, exact_gradient))
    except (RuntimeError, MemoryError) as failure:
        return timed, errors, f"errors unknown: {timing.failure_reason(failure)}"
    return timed, errors, ""


def _forward_backward(
    loss: Loss, logits: Tensor, target: Tensor, scale: float, watch: timing.Stopwatch | None = None
) -> tuple[Tensor, Tensor]:
    """Return the loss, and the gradient of ``scale`` times the loss."""
    value = loss(logits, target)
    if watch is not None:
        watch.mark()
    (gradient,) = torch.autograd.grad(value, logits, torch.full_like(value, scale))
    return value.detach(), gradient


def _relative_error(gradient: Tensor, scale: float, exact: Tensor) -> float:
    """Return ‖g / scale − g₆₄‖ / ‖g₆₄‖, computed image by image to save device memory."""
    pairs = zip(torch.split(gradient.detach(), 1), torch.split(exact, 1), strict=True)
    squares = [float((one.double() / scale - expected.to(one.device)).square().sum()) for one, expected in pairs]
    norm = float(exact.norm())
    return math.fsum(squares) ** 0.5 / norm if norm > 0 else 0.0
