"""Forgetting per class, and the average of the mIoU over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faircl.fairness.transfer import forgotten
from faircl.metrics.summary import StepMetrics, mean, nan_to_none


@dataclass(frozen=True)
class Forgetting:
    """Forgetting per class name in percent points (negative: improved), and its means over the old classes.

    NaN for classes learned at this step and for classes that were never present before.
    """

    classes: Mapping[str, float]
    mean: float
    mean_without_background: float

    def to_json(self) -> dict[str, Any]:
        """Keys of a metrics.jsonl line: ``forgetting`` per class name, and the two means."""
        plain: dict[str, Any] = nan_to_none(
            {
                "forgetting": dict(self.classes),
                "mean_forgetting": self.mean,
                "mean_forgetting_without_background": self.mean_without_background,
            }
        )
        return plain


def forgetting(steps: Sequence[StepMetrics]) -> Forgetting:
    """Forgetting after the last of the given steps, F_c = max_{s_c ≤ s < t} IoU_c(s) − IoU_c(t), s_c learning c.

    With one step only (a first step, or joint training) there is no earlier IoU and every value is NaN. The
    background is an old class like any other from step 1 on, as in the ``old`` mean.
    """
    if not steps:
        raise ValueError("Forgetting needs the metrics of at least one step.")
    now = max(steps, key=lambda s: s.step)
    lost = list(forgotten(steps).values())
    return Forgetting(
        classes={c.name: value for c, value in zip(now.classes, lost, strict=True)},
        mean=mean(lost),
        mean_without_background=mean(lost[int(now.background) :]),
    )


def average_over_steps(steps: Sequence[StepMetrics]) -> float:
    """Mean over steps of the mIoU of all classes seen so far, the "avg" column of published tables."""
    return mean(s.groups["all"].miou for s in steps)
