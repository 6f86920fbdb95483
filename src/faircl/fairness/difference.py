"""The difference between two evaluations of the same images, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from faircl.errors import UserError
from faircl.fairness.intervals import CONFIDENCE, RESAMPLES, Interval, intervals
from faircl.fairness.plain import plain
from faircl.fairness.rates import Floats, percent
from faircl.fairness.record import EvaluationRecord, ImageCounts
from faircl.fairness.resampling import left_out_ious, resampled_ious, with_mean_and_std


@dataclass(frozen=True)
class Change:
    """A measure before and after, their difference in percent points, and its interval."""

    before: float
    after: float
    difference: float
    interval: Interval | None

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high


@dataclass(frozen=True)
class ClassChange(Change):
    """The change of a class's IoU."""

    id: int
    name: str


@dataclass(frozen=True)
class Difference:
    """After minus before, over the images and the classes of both."""

    images: int
    classes: tuple[ClassChange, ...]
    miou: Change
    std: Change
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """Plain values, NaN as None."""
        found: dict[str, Any] = plain(self)
        return found


def paired_difference(
    before: EvaluationRecord,
    after: EvaluationRecord,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Difference:
    """Compare two records image by image, over the images (by id) and the scored classes (by raw id) of both.

    Both are measured on the same drawn sets of images, so that what makes an image easy or hard for both cancels out.

    Raises:
        UserError: the records share no image or no class.
    """
    first, second = _shared_images(before, after)
    places = {c.id: k for k, c in enumerate(before.classes) if c.scored}
    columns = [(places[c.id], k) for k, c in enumerate(after.classes) if c.scored and c.id in places]
    if not columns:
        raise UserError("The two evaluations share no class: compare evaluations of the same data set.")
    sides = [_columns(first, [a for a, _ in columns]), _columns(second, [b for _, b in columns])]
    ious = [_ious(counts) for counts in sides]
    present = ~np.isnan(ious[0] + ious[1])
    was, now = (with_mean_and_std(one, present) for one in ious)
    drawn = [with_mean_and_std(one, present) for one in resampled_ious(sides, resamples, seed)]
    left = [with_mean_and_std(left_out_ious(counts), present) for counts in sides]
    shown = (sides[1].truth > 0).sum(axis=0)
    images = [*shown, len(first.images), len(first.images)]
    found = intervals(now - was, drawn[1] - drawn[0], left[1] - left[0], images, confidence)
    rows = [(float(a), float(b), float(b - a), one) for a, b, one in zip(was, now, found, strict=True)]
    classes = tuple(
        ClassChange(*row, id=after.classes[b].id, name=after.classes[b].name)
        for row, (_, b) in zip(rows, columns, strict=False)
    )
    return Difference(len(first.images), classes, Change(*rows[-2]), Change(*rows[-1]), confidence)


def _shared_images(before: EvaluationRecord, after: EvaluationRecord) -> tuple[EvaluationRecord, EvaluationRecord]:
    place = {id: k for k, id in enumerate(before.images)}
    shared = [k for k, id in enumerate(after.images) if id in place]
    if not shared:
        raise UserError(
            "The two evaluations share no image, so they cannot be compared image by image: "
            "evaluate both on the same images."
        )
    return before.select([place[after.images[k]] for k in shared]), after.select(shared)


def _ious(counts: ImageCounts) -> Floats:
    hits, truth, predicted = (column.sum(axis=0) for column in counts)
    return percent(hits, truth + predicted - hits, truth > 0)


def _columns(record: EvaluationRecord, chosen: list[int]) -> ImageCounts:
    return ImageCounts(*(column[:, chosen] for column in record.per_image()))
