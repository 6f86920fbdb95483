"""Timing of evaluation: argmax of upsampled logits, and the confusion matrix.

Logits are random float32, as in evaluation, and already on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.bench import timing
from faircl.bench.problem_size import ProblemSize, random_labels, random_logits
from faircl.engine.image_counts import pair_counts
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.progress import Reporter
from faircl.upsampling import upsampled_argmax

ARGMAX, COUNTS = "argmax", "confusion matrix"
FUSED = "fused"
ACCURACY = 0.75
"""Share of correct pixels in the predictions that are counted."""


@dataclass(frozen=True)
class EvaluationCost(timing.BenchRow):
    """Cost of one implementation (``way``) of ``work``; times are medians over rounds.

    ``extra_gib``: peak memory beyond the inputs, the result included. ``ratio``: time of the first implementation over
    this one's. ``equal``: share of pixels with the same class as in float64, where ties and rounding may differ; for
    the confusion matrix, share of pixels counted the same. ``stride`` is None for the confusion matrix, which uses no
    logits. ``note``: why numbers are missing.
    """

    work: str
    way: str
    classes: int
    size: int
    stride: int | None
    batch: int
    milliseconds: float | None = None
    spread: tuple[float, float] | None = None
    extra_gib: float | None = None
    ratio: float | None = None
    equal: float | None = None
    note: str = ""


def interpolate_argmax(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Interpolate the logits (B, C, h, w) of the whole batch; return the classes (B, H, W)."""
    return F.interpolate(logits, size, mode="bilinear", align_corners=False).argmax(1)


def interpolate_argmax_by_image(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the same, with the upsampled logits of one image at a time in memory."""
    return torch.cat([interpolate_argmax(one, size) for one in torch.split(logits, 1)])


def bincount(prediction: Tensor, target: Tensor, classes: int) -> Tensor:
    """Return counts (C, C) of pixels by target and prediction, without checking their range."""
    valid = target != IGNORE
    pairs = target[valid] * classes + prediction[valid]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def counts_by_image(prediction: Tensor, target: Tensor, classes: int) -> Tensor:
    """Return the same from the counts by image that an evaluation collects."""
    _, truth, predicted, pixels = torch.from_numpy(pair_counts(prediction, target, classes)).T
    counts = torch.zeros(classes, classes, dtype=torch.int64)
    return counts.index_put((truth, predicted), pixels, accumulate=True).to(prediction.device)


PREDICTIONS: dict[str, Callable[[Tensor, tuple[int, int]], Tensor]] = {
    "interpolate + argmax": interpolate_argmax,
    "image by image": interpolate_argmax_by_image,
    FUSED: upsampled_argmax,
}
COUNTERS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "bincount": bincount,
    "image by image": counts_by_image,
}


def bench_evaluation(sizes: Sequence[ProblemSize], rounds: int, reporter: Reporter) -> list[EvaluationCost]:
    """Time all argmax implementations at every size, and all counters at every size; strides do not matter to those."""
    timing.check_rounds(rounds)
    device = timing.benchmark_device()
    counted = list({(size.classes, size.size): size for size in reversed(sizes)}.values())[::-1]
    total = len(sizes) * len(PREDICTIONS) + len(counted) * len(COUNTERS)
    rows: list[EvaluationCost] = []
    with reporter.task("timing evaluation", total) as task:
        try:
            for size in sizes:
                for row in _time_argmax(size, rounds, device):
                    rows.append(row)
                    task.advance(f"{size.label}: {row.way}")
            for size in counted:
                for row in _time_counting(size, rounds, device):
                    rows.append(row)
                    task.advance(f"{size.classes} classes: {row.way}")
        except (RuntimeError, MemoryError) as error:
            raise UserError(
                f"The inputs for {size.label} cannot be made: {timing.failure_reason(error)}; lower --batch, --size or "
                "--classes."
            ) from None
    return rows


def _time_argmax(size: ProblemSize, rounds: int, device: torch.device) -> Iterator[EvaluationCost]:
    logits = random_logits(size, torch.float32, device)
    side = (size.size, size.size)
    ways = {name: partial(way, logits, side) for name, way in PREDICTIONS.items()}
    kernels_note = timing.kernels_note(device)
    blank = EvaluationCost(ARGMAX, "", size.classes, size.size, size.stride, size.batch)

    def equal(prediction: Tensor) -> float:
        """Compare with the argmax of float64 logits, image by image."""
        pairs = zip(torch.split(logits, 1), prediction, strict=True)
        alike = (interpolate_argmax(one.double(), side)[0] == found for one, found in pairs)
        return sum(int(one.sum()) for one in alike) / size.pixels

    for row in _time_all(blank, ways, equal, rounds, device):
        yield replace(row, note=kernels_note) if row.way == FUSED and not row.note else row


def _time_counting(size: ProblemSize, rounds: int, device: torch.device) -> Iterator[EvaluationCost]:
    target = random_labels(size, device)
    generator = torch.Generator(device).manual_seed(2)
    guess = torch.randint(size.classes, target.shape, generator=generator, device=device)
    correct = torch.rand(target.shape, generator=generator, device=device) < ACCURACY
    prediction = target.where(correct & (target != IGNORE), guess)
    ways = {name: partial(way, prediction, target, size.classes) for name, way in COUNTERS.items()}
    blank = EvaluationCost(COUNTS, "", size.classes, size.size, None, size.batch)

    def equal(counts: Tensor) -> float:
        """Compare with counts made on the CPU."""
        valid = (target != IGNORE).cpu()
        pairs = (target.cpu()[valid] * size.classes + prediction.cpu()[valid]).bincount(minlength=size.classes**2)
        return float(torch.minimum(pairs, counts.cpu().flatten()).sum() / valid.sum())

    yield from _time_all(blank, ways, equal, rounds, device)


def _time_all(
    blank: EvaluationCost,
    ways: Mapping[str, Callable[[], Tensor]],
    equal: Callable[[Tensor], float],
    rounds: int,
    device: torch.device,
) -> Iterator[EvaluationCost]:
    """Time all implementations; ratios are to the first one."""
    baseline: float | None = None
    for name, way in ways.items():
        timing.free_memory(device)
        row = _time_one(replace(blank, way=name), way, equal, rounds, device)
        if name == next(iter(ways)):
            baseline = row.milliseconds
        yield replace(row, ratio=timing.speedup(baseline, row.milliseconds))


def _time_one(
    blank: EvaluationCost,
    way: Callable[[], Tensor],
    equal: Callable[[Tensor], float],
    rounds: int,
    device: torch.device,
) -> EvaluationCost:
    try:
        timed, result = timing.measure(lambda _: way(), device, rounds)
    except (RuntimeError, MemoryError) as error:
        return replace(blank, note=timing.failure_reason(error))
    row = replace(blank, milliseconds=timed.milliseconds, spread=timed.spread, extra_gib=timed.extra_gib)
    try:
        return replace(row, equal=equal(result))
    except (RuntimeError, MemoryError) as error:
        return replace(row, note=f"equality unknown: {timing.failure_reason(error)}")
