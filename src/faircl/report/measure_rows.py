"""The measures of an audit as rows of a page: name, value, interval, and one line that says what it means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from faircl.fairness.audit import Audit
from faircl.fairness.intervals import Interval
from faircl.fairness.record import BINS, EvaluationRecord
from faircl.fairness.transfer import transfer
from faircl.metrics import StepMetrics
from faircl.report.numbers import between, number


class MeasureRow(NamedTuple):
    """One measure, as it is shown."""

    name: str
    value: str
    interval: str
    about: str


def measure_rows(metrics: StepMetrics, audit: Audit | None) -> list[MeasureRow]:
    """Return the measures of a step; those that need a record only where there is one."""
    all_ = metrics.groups["all"]
    found = [
        _row("Mean IoU", all_.miou, "mean of the class IoUs, all alike", audit.miou_interval if audit else None),
        _row("STD", all_.std, "standard deviation of the class IoUs, in points", audit.std_interval if audit else None),
        _row("Gap", metrics.gap, "best class IoU minus the worst, in points"),
        _row("Error gap", metrics.error_gap, "largest difference between the error rates of two classes, in points"),
        _row("Rarest third", metrics.rarest_third, "mean IoU of the third of the classes with fewest pixels"),
        _row("Most frequent third", metrics.frequent_third, "mean IoU of the third with most pixels"),
        _row("Pixel accuracy", metrics.pixel_accuracy, "pixels that are right, whatever their class"),
        _row("Mean accuracy", metrics.mean_accuracy, "mean over the classes of their pixels that are right"),
        *([] if audit is None else _audited(audit)),
    ]
    return [row for row in found if row is not None]


def _audited(audit: Audit) -> list[MeasureRow | None]:
    worst, share = audit.worst_k, f"{audit.worst_share:g}"
    return [
        _row(f"Worst {worst}", audit.worst_k_mean, f"mean IoU of the {worst} worst classes"),
        _row("Major classes", audit.major_miou, "mean IoU of the most frequent third, without the background"),
        _row("Minor classes", audit.minor_miou, "mean IoU of the other classes, without the background"),
        _row(
            "Rank correlation", audit.rank_correlation, "of IoU and frequency: 1 if IoU only follows frequency", None, 2
        ),
        _row(
            "Gini", audit.gini, "inequality of the class IoUs: 0 if all are equal, near 1 if one class has all", None, 2
        ),
        _row("Jain", audit.jain, "evenness of the class IoUs: 1 if all are equal, 1 / classes if one has all", None, 2),
        _row("Variation", audit.variation, "STD divided by the mean IoU", None, 2),
        _row("mIoU by image", audit.image_miou, "mean over the images of the IoU within an image"),
        _row(f"Worst {share} % of images", audit.worst_image_miou, "the same, over the worst images only"),
        _row("mIoU by class and image", audit.class_miou, "mean over the classes of their mean IoU within an image"),
        _row(f"Worst {share} % by class", audit.worst_class_miou, "the same, over the worst images of every class"),
        _row("Calibration error", audit.calibration_error, "mean difference of confidence and accuracy, in points"),
    ]


def transfer_rows(steps: Sequence[StepMetrics]) -> list[MeasureRow]:
    """Return what classes lost and gained over the steps; nothing for a single step."""
    found = transfer(steps)
    rows = [
        _row("Forgetting", found.forgetting, "best earlier IoU minus the last, mean over the old classes, in points"),
        _row("Backward transfer", found.backward, "last IoU minus that when learned, mean over the old classes"),
        _row("Plasticity", found.plasticity, "IoU when learned, mean over the classes added after the first step"),
    ]
    return [row for row in rows if row is not None]


class ReliabilityRow(NamedTuple):
    """Pixels of one range of confidences: the range, their share, mean confidence and accuracy, all in percent."""

    confidences: str
    share: float
    confidence: float
    accuracy: float


def reliability_rows(record: EvaluationRecord) -> list[ReliabilityRow]:
    """Return the calibration bins of a record that hold pixels, over all images and classes."""
    bins = record.reliability
    pixels, correct, sure = (
        np.bincount(bins.bin, column, minlength=BINS) for column in (bins.pixels, bins.correct, bins.confidence)
    )
    return [
        ReliabilityRow(
            f"{100 * k / BINS:.0f} – {100 * (k + 1) / BINS:.0f}",
            float(100 * pixels[k] / pixels.sum()),
            float(100 * sure[k] / pixels[k]),
            float(100 * correct[k] / pixels[k]),
        )
        for k in np.flatnonzero(pixels)
    ]


def _row(name: str, value: float, about: str, interval: Interval | None = None, digits: int = 1) -> MeasureRow | None:
    if math.isnan(value):
        return None
    return MeasureRow(name, number(value, digits), between(interval, digits), about)
