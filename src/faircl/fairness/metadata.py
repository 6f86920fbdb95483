"""Groups of images by what is known about them, such as city, camera or weather."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from faircl.errors import UserError
from faircl.fairness.intervals import CONFIDENCE, RESAMPLES, Interval, intervals
from faircl.fairness.rates import class_rates
from faircl.fairness.record import EvaluationRecord
from faircl.fairness.resampling import resampled

UNKNOWN = "unknown"
"""The value of images that the metadata does not mention."""
Groups = Mapping[str, Mapping[str, str]]
"""Attribute → image id → value."""


@dataclass(frozen=True)
class ImageGroup:
    """The images with one value: mIoU, STD and the worst of the classes they show, in percent."""

    value: str
    images: int
    miou: float
    std: float
    worst: str | None
    worst_iou: float
    miou_interval: Interval | None


@dataclass(frozen=True)
class Attribute:
    """The groups of one attribute, by value, and how far apart their mIoUs are, named as fairlearn names them.

    ``difference`` is ``group_max − group_min``, ``ratio`` is ``group_min / group_max``, a fraction.
    """

    name: str
    groups: tuple[ImageGroup, ...]
    group_min: float
    group_max: float
    difference: float
    ratio: float


def image_groups(
    record: EvaluationRecord,
    groups: Groups,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> tuple[Attribute, ...]:
    """Measure every group of images; an image without a value belongs to the group ``unknown``.

    Raises:
        UserError: an attribute names none of the record's images.
    """
    found = []
    for name, values in groups.items():
        if not any(id in values for id in record.images):
            raise UserError(
                f"No image of the evaluation has a value of '{name}': the metadata names images such as "
                f"'{next(iter(values), '')}', the evaluation '{next(iter(record.images), '')}'; use the same names."
            )
        of = np.array([str(values.get(id, UNKNOWN)) or UNKNOWN for id in record.images])
        parts = [(str(value), np.flatnonzero(of == value).tolist()) for value in np.unique(of)]
        measured = tuple(_group(value, record.select(some), resamples, confidence, seed) for value, some in parts)
        found.append(_attribute(name, measured))
    return tuple(found)


def _group(value: str, record: EvaluationRecord, resamples: int, confidence: float, seed: int) -> ImageGroup:
    counts = record.per_image()
    rates = class_rates(record, counts)
    found = resampled([counts], rates.present, resamples, seed)
    worst = int(np.nanargmin(rates.ious)) if rates.present.any() else None
    return ImageGroup(
        value=value,
        images=len(record.images),
        miou=float(found.measures[-2]),
        std=float(found.measures[-1]),
        worst=None if worst is None else record.classes[worst].name,
        worst_iou=math.nan if worst is None else float(rates.ious[worst]),
        miou_interval=intervals(found, len(record.images), confidence=confidence)[-2],
    )


def _attribute(name: str, groups: tuple[ImageGroup, ...]) -> Attribute:
    means = [group.miou for group in groups if not math.isnan(group.miou)]
    low, high = (min(means), max(means)) if means else (math.nan, math.nan)
    return Attribute(name, groups, low, high, high - low, low / high if high else math.nan)
