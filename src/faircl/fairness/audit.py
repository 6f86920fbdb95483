"""The audit of one evaluation: what every class gets, how far apart the classes are, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from faircl.fairness.calibration import calibration_errors
from faircl.fairness.image_ious import WORST, image_ious, image_means
from faircl.fairness.intervals import CONFIDENCE, RESAMPLES, Interval, intervals
from faircl.fairness.metadata import Attribute, Groups, image_groups
from faircl.fairness.plain import plain
from faircl.fairness.rates import Flags, class_rates, foreground, scored
from faircl.fairness.record import Counts, EvaluationRecord
from faircl.fairness.resampling import resampled
from faircl.fairness.sizes import SizeStratum, size_strata
from faircl.fairness.spread import (
    SummedErrors,
    gap,
    gini,
    jain,
    rank_correlation,
    summed_errors,
    variation,
    worst_mean,
)


@dataclass(frozen=True)
class ClassAudit:
    """One class. IoU, accuracy (recall) and error rate (1 − recall) in percent, NaN without a truth pixel.

    ``pixels`` are those of the truth, ``share`` their share among all of them in percent, ``images`` the images that
    show the class. ``group`` is "major" for the most frequent third of the foreground classes, "minor" for the others,
    "" for the background and absent classes; ``image_iou`` is the mean of the class's IoUs image by image, and
    ``calibration_error`` the expected calibration error of the pixels predicted as this class.
    """

    id: int
    name: str
    iou: float
    accuracy: float
    error_rate: float
    pixels: int
    share: float
    images: int
    learned_at: int
    interval: Interval | None
    image_iou: float = math.nan
    calibration_error: float = math.nan
    group: str = ""


@dataclass(frozen=True)
class Audit:
    """All measures of an evaluation; the worst class has its own class's interval.

    In percent: ``gap`` is the best minus the worst class IoU, ``error_gap`` the largest difference between two error
    rates, ``worst_k_mean`` the mean IoU of the ``worst_k`` worst classes, ``major_miou`` and ``minor_miou`` those of
    the two groups of classes, ``image_miou`` and ``class_miou`` the means of the IoUs image by image, over images and
    over classes, ``worst_image_miou`` and ``worst_class_miou`` those of the worst ``worst_share`` percent of images.
    As numbers: ``gini``, ``jain`` and ``variation`` of the class IoUs, and ``rank_correlation`` of IoU and frequency.
    """

    images: int
    classes: tuple[ClassAudit, ...]
    miou: float
    std: float
    gap: float
    error_gap: float
    miou_interval: Interval | None
    std_interval: Interval | None
    confidence: float = CONFIDENCE
    step: int = 0
    worst_k: int = 1
    worst_k_mean: float = math.nan
    gini: float = math.nan
    jain: float = math.nan
    variation: float = math.nan
    rank_correlation: float = math.nan
    major_miou: float = math.nan
    minor_miou: float = math.nan
    worst_share: float = WORST
    image_miou: float = math.nan
    class_miou: float = math.nan
    worst_image_miou: float = math.nan
    worst_class_miou: float = math.nan
    calibration_error: float = math.nan
    summed_errors: SummedErrors | None = None
    sizes: tuple[SizeStratum, ...] = ()
    groups: tuple[Attribute, ...] = ()

    @property
    def worst(self) -> ClassAudit | None:
        """The class with the lowest IoU; None if no class is present."""
        return min((c for c in self.classes if c.pixels), key=lambda c: c.iou, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, NaN as None; the keys are a public contract."""
        out: dict[str, Any] = plain(self)
        worst = self.worst
        out["worst"] = {"name": worst.name, "iou": worst.iou} if worst else {"name": None, "iou": None}
        return out


def audit_record(
    record: EvaluationRecord,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    groups: Groups | None = None,
    worst_k: int | None = None,
    worst_share: float = WORST,
) -> Audit:
    """Compute every measure of a record; intervals from ``resamples`` sets of images drawn with replacement.

    With ``resamples`` 0 there are no intervals. ``groups`` maps attributes to image ids to values; ``worst_k`` is by
    default a third of the present classes, at least one; ``worst_share`` is the share of worst images in percent.
    """
    counts = record.per_image()
    rates = class_rates(record, counts)
    present, known = rates.present, rates.ious[rates.present]
    shown = (counts.truth > 0).sum(axis=0)
    found = resampled([counts], present, resamples, seed)
    sure = intervals(found, [*(shown * present), len(record.images), len(record.images)], confidence=confidence)
    overall, calibration = calibration_errors(record)
    by_image = image_means(image_ious(counts, scored(record)), worst_share)
    objects = foreground(record) & present
    major = _major(rates.pixels, objects)
    minor = objects & ~major
    worst_k = worst_k or max(1, len(known) // 3)
    classes = tuple(
        ClassAudit(
            id=c.id,
            name=c.name,
            iou=float(rates.ious[k]),
            accuracy=float(rates.accuracies[k]),
            error_rate=float(100 - rates.accuracies[k]),
            pixels=int(rates.pixels[k]) if c.scored else 0,
            share=100 * float(rates.pixels[k]) / max(1, int(rates.pixels.sum())),
            images=int(shown[k]),
            learned_at=c.learned_at,
            interval=sure[k],
            image_iou=float(by_image.classes[k]),
            calibration_error=float(calibration[k]),
            group="major" if major[k] else "minor" if minor[k] else "",
        )
        for k, c in enumerate(record.classes)
    )
    missed = (counts.truth - counts.hits).sum(axis=0)[present]
    return Audit(
        images=len(record.images),
        classes=classes,
        miou=float(found.measures[-2]),
        std=float(found.measures[-1]),
        gap=gap(known),
        error_gap=gap(rates.accuracies[present]),
        miou_interval=sure[-2],
        std_interval=sure[-1],
        confidence=confidence,
        step=record.step,
        worst_k=worst_k,
        worst_k_mean=worst_mean(known, worst_k),
        gini=gini(known),
        jain=jain(known),
        variation=variation(known),
        rank_correlation=rank_correlation(rates.ious[objects], rates.pixels[objects]),
        major_miou=worst_mean(rates.ious[major], len(known)),
        minor_miou=worst_mean(rates.ious[minor], len(known)),
        worst_share=worst_share,
        image_miou=by_image.image_miou,
        class_miou=by_image.class_miou,
        worst_image_miou=by_image.worst_image_miou,
        worst_class_miou=by_image.worst_class_miou,
        calibration_error=overall,
        summed_errors=summed_errors(missed, len(record.images)),
        sizes=size_strata(counts, foreground(record)),
        groups=image_groups(record, groups or {}, resamples=resamples, confidence=confidence, seed=seed),
    )


def _major(pixels: Counts, objects: Flags) -> Flags:
    """Return the most frequent third of the chosen classes, rounded down; equals in the order of the classes."""
    ranked = np.argsort(np.where(objects, -pixels, 1), kind="stable")
    major = np.zeros(len(pixels), dtype=bool)
    major[ranked[: int(objects.sum()) // 3]] = True
    return major
