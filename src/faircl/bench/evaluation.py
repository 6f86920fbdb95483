"""Timing of what evaluation does to a batch of logits: the class of every pixel, and the count of the confusion matrix.

Logits are random, in full precision as evaluation has them, and already on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.bench.timing import (
    ProblemSize,
    benchmark_device,
    check_rounds,
    failure_reason,
    measure,
    random_labels,
    random_logits,
    release,
    without_kernels,
)
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.metrics import ConfusionMatrix
from faircl.progress import Reporter
from faircl.upsampling import upsampled_argmax

ARGMAX, COUNTS = "argmax", "confusion matrix"
FUSED = "fused"
RIGHT = 0.75
"""Share of pixels that predictions to be counted have right."""


@dataclass(frozen=True)
class EvaluationCost:
    """What one way to do some work costs; a median over rounds; ``ratio``: the first way's time to its own.

    ``extra_gib``: largest memory in use beyond what is given, the result among it. ``equal``: share of pixels whose
    class is that of float64, where ties and rounding may differ; for counts the share of pixels counted alike.
    ``stride`` is None where logits play no part. ``note``: why numbers are missing.
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

    def to_json(self) -> dict[str, Any]:
        """Return the numbers."""
        return asdict(self)


def at_once(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Class of every pixel by way of a batch of logits at full resolution."""
    return F.interpolate(logits, size, mode="bilinear", align_corners=False).argmax(1)


def by_image(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Class of every pixel by way of one image's logits at a time."""
    return torch.cat([at_once(one, size) for one in torch.split(logits, 1)])


def bincount(prediction: Tensor, target: Tensor, classes: int) -> Tensor:
    """Return counts (C, C) of pixels by truth and prediction, without a look at whether they are classes at all."""
    counted = target != IGNORE
    pairs = target[counted] * classes + prediction[counted]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def confusion(prediction: Tensor, target: Tensor, classes: int) -> Tensor:
    """Count as evaluation does."""
    matrix = ConfusionMatrix(classes, prediction.device)
    matrix.update(prediction, target)
    return matrix.counts


PREDICTIONS: dict[str, Callable[[Tensor, tuple[int, int]], Tensor]] = {
    "interpolate + argmax": at_once,
    "image by image": by_image,
    FUSED: upsampled_argmax,
}
COUNTERS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "bincount": bincount,
    "ConfusionMatrix.update": confusion,
}


def bench_evaluation(sizes: Sequence[ProblemSize], rounds: int, reporter: Reporter) -> list[EvaluationCost]:
    """Time every way to predict at every size, and to count at every size whatever the stride."""
    check_rounds(rounds)
    device = benchmark_device()
    to_count = list({(size.classes, size.size): size for size in reversed(sizes)}.values())[::-1]
    total = len(sizes) * len(PREDICTIONS) + len(to_count) * len(COUNTERS)
    rows: list[EvaluationCost] = []
    with reporter.task("timing evaluation", total) as task:
        try:
            for size in sizes:
                for row in _predictions(size, rounds, device):
                    rows.append(row)
                    task.advance(f"{size.words}: {row.way}")
            for size in to_count:
                for row in _counts(size, rounds, device):
                    rows.append(row)
                    task.advance(f"{size.classes} classes: {row.way}")
        except (RuntimeError, MemoryError) as error:
            raise UserError(
                f"The logits or labels of {size.words} alone: {failure_reason(error)}; lower --batch, --size or "
                "--classes."
            ) from None
    return rows


def _predictions(size: ProblemSize, rounds: int, device: torch.device) -> Iterator[EvaluationCost]:
    logits = random_logits(size, torch.float32, device)
    side = (size.size, size.size)
    ways = {name: partial(way, logits, side) for name, way in PREDICTIONS.items()}
    plain = without_kernels(device)
    blank = EvaluationCost(ARGMAX, "", size.classes, size.size, size.stride, size.batch)

    def equal(found: Tensor) -> float:
        """Compare with float64, image by image."""
        alike = (at_once(one.double(), side)[0] == own for one, own in zip(torch.split(logits, 1), found, strict=True))
        return sum(int(one.sum()) for one in alike) / size.pixels

    for row in _rows(blank, ways, equal, rounds, device):
        yield replace(row, note=plain) if row.way == FUSED and not row.note else row


def _counts(size: ProblemSize, rounds: int, device: torch.device) -> Iterator[EvaluationCost]:
    target = random_labels(size, device)
    draw = torch.Generator(device).manual_seed(2)
    guess = torch.randint(size.classes, target.shape, generator=draw, device=device)
    right = torch.rand(target.shape, generator=draw, device=device) < RIGHT
    prediction = target.where(right & (target != IGNORE), guess)
    ways = {name: partial(way, prediction, target, size.classes) for name, way in COUNTERS.items()}
    blank = EvaluationCost(COUNTS, "", size.classes, size.size, None, size.batch)

    def equal(found: Tensor) -> float:
        """Compare with counts made in the host's memory."""
        valid = (target != IGNORE).cpu()
        pairs = (target.cpu()[valid] * size.classes + prediction.cpu()[valid]).bincount(minlength=size.classes**2)
        return float(torch.minimum(pairs, found.cpu().flatten()).sum() / valid.sum())

    yield from _rows(blank, ways, equal, rounds, device)


def _rows(
    blank: EvaluationCost,
    ways: Mapping[str, Callable[[], Tensor]],
    equal: Callable[[Tensor], float],
    rounds: int,
    device: torch.device,
) -> Iterator[EvaluationCost]:
    """Time ways to the same result; ratios are to the first of them."""
    first: float | None = None
    for name, way in ways.items():
        release(device)
        row = _row(replace(blank, way=name), way, equal, rounds, device)
        if name == next(iter(ways)):
            first = row.milliseconds
        if first is None or row.milliseconds is None:
            yield row
        else:
            yield replace(row, ratio=first / row.milliseconds)


def _row(
    blank: EvaluationCost,
    way: Callable[[], Tensor],
    equal: Callable[[Tensor], float],
    rounds: int,
    device: torch.device,
) -> EvaluationCost:
    try:
        timed, found = measure(lambda _: way(), device, rounds)
    except (RuntimeError, MemoryError) as error:
        return replace(blank, note=failure_reason(error))
    row = replace(blank, milliseconds=timed.milliseconds, spread=timed.spread, extra_gib=timed.extra_gib)
    try:
        return replace(row, equal=equal(found))
    except (RuntimeError, MemoryError) as error:
        return replace(row, note=f"equality unknown: {failure_reason(error)}")
