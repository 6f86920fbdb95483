"""A row per label: the measures of its runs after their last step, mean and standard deviation over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faircl.metrics import ClassMetrics, StepMetrics
    from faircl.runs.run import Run

GROUPS = ("old", "new", "initial", "added", "all")
SPREADS = ("std", "gap", "error_gap")
"""Measures of how far apart the classes are: low if all classes are served alike, well or badly."""


@dataclass(frozen=True)
class Row:
    """Runs of one label after their last step: mean and population standard deviation of every measure.

    In percent: the mean IoU of ``old``, ``new`` and ``all`` classes, and of the ``initial`` and ``added`` ones that
    published tables print, each also with ``_std``, the standard deviation over its classes (``std`` for all); ``gap``,
    ``error_gap``; the IoU of the worst class (``worst_iou``); mean IoUs of the ``rarest_third`` and the
    ``frequent_third`` of the classes and of the third with the lowest IoUs (``worst_third``), of ``major`` and
    ``minor`` classes (the most frequent third of those that are no background, and the others) with their ``_std``;
    ``forgetting``; and ``average``, the mean over steps of ``all``. ``worst`` names the worst class of each run.
    """

    label: str
    runs: tuple[str, ...]
    mean: dict[str, float]
    spread: dict[str, float]
    worst: tuple[str, ...]


def row_of(label: str, runs: Sequence[Run]) -> Row:
    """Make the row of a label's runs."""
    import numpy as np

    found = [measures(run) for run in runs]
    means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    spreads = {name: float(np.std([one[name] for one in found])) for name in found[0]}
    worst = sorted({run.final.worst.name for run in runs if run.final.worst})
    return Row(label, tuple(str(run.folder) for run in runs), means, spreads, tuple(worst))


def measures(run: Run) -> dict[str, float]:
    """Return every measure of a run after its last step."""
    from faircl.metrics import forgetting

    final = run.final
    found = {group: final.groups[group].miou for group in GROUPS}
    found |= {f"{group}_std": final.groups[group].std for group in GROUPS if group != "all"}
    found |= {"std": final.groups["all"].std, "gap": final.gap, "error_gap": final.error_gap}
    found["worst_iou"] = final.worst.iou if final.worst else math.nan
    found |= {"rarest_third": final.rarest_third, "frequent_third": final.frequent_third}
    present = sorted(c.iou for c in final.classes if c.pixels)
    found["worst_third"] = _mean_std(present[: max(1, len(present) // 3)])[0]
    for name, classes in zip(("major", "minor"), _major_minor(final), strict=True):
        found[name], found[f"{name}_std"] = _mean_std([c.iou for c in classes])
    return found | {"forgetting": forgetting(run.steps).mean, "average": run.average}


def _major_minor(final: StepMetrics) -> tuple[list[ClassMetrics], list[ClassMetrics]]:
    """Return the most frequent third of the classes, by their pixels in the evaluated images, and the others."""
    ranked = sorted((c for c in final.classes[int(final.background) :] if c.pixels), key=lambda c: -c.pixels)
    third = len(ranked) // 3
    return ranked[:third], ranked[third:]


def _mean_std(values: Sequence[float]) -> tuple[float, float]:
    import numpy as np

    return (float(np.mean(values)), float(np.std(values))) if values else (math.nan, math.nan)
