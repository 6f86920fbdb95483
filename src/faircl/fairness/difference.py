"""The difference between two evaluations of the same images, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from faircl.errors import UserError
from faircl.fairness.intervals import CONFIDENCE, RESAMPLES, Interval, intervals
from faircl.fairness.plain import plain
from faircl.fairness.record import EvaluationRecord, ImageCounts
from faircl.fairness.resampling import resampled


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
    shown = np.minimum(*((counts.truth > 0).sum(axis=0) for counts in sides))
    was, now = (resampled([counts], shown > 0, 0, seed).measures for counts in sides)
    images = [*shown, len(first.images), len(first.images)]
    found = intervals(resampled(sides, shown > 0, resamples, seed), images, confidence=confidence, lowest=-100)
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


def _columns(record: EvaluationRecord, chosen: list[int]) -> ImageCounts:
    return ImageCounts(*(column[:, chosen] for column in record.per_image()))
