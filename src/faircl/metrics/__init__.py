"""Metrics: confusion matrix, class IoUs and their groups, fairness between classes, forgetting over steps."""

from faircl.metrics.confusion import ConfusionMatrix, error_rate, iou, pixels
from faircl.metrics.forgetting import Forgetting, average_over_steps, forgetting
from faircl.metrics.summary import ClassMetrics, GroupMetrics, StepMetrics, summarise

__all__ = [
    "ClassMetrics",
    "ConfusionMatrix",
    "Forgetting",
    "GroupMetrics",
    "StepMetrics",
    "average_over_steps",
    "error_rate",
    "forgetting",
    "iou",
    "pixels",
    "summarise",
]
