"""Metrics of one evaluation: class IoUs, their means over groups of classes, and their spread between classes.

All values are percent, or percent points for differences and spreads. At step t the groups are

- ``old``: learned before t · ``new``: learned at t · ``all``: every class seen so far;
- ``initial``: learned at step 0 · ``added``: learned later. Published tables group this way ("0-15", "16-20").

A background class counts as learned at step 0. Published means include it ("0-100" has 101 classes); every group
is also given without it. Absent classes (NaN) are left out of all means; a group without a class is NaN, in JSON null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from faircl.metrics.confusion import error_rate, iou, pixels

STEP_GROUPS = ("old", "new", "all")
GROUPS = (*STEP_GROUPS, "initial", "added")


@dataclass(frozen=True)
class ClassMetrics:
    """One class: raw id, name, IoU and error rate (1 − recall) in percent, truth pixels, step that learned it."""

    id: int
    name: str
    iou: float
    pixels: int
    error_rate: float
    learned_at: int


@dataclass(frozen=True)
class GroupMetrics:
    """Mean of the class IoUs of a group and their population standard deviation √(Σ(x − x̄)² / N)."""

    miou: float
    std: float
    miou_without_background: float
    std_without_background: float


@dataclass(frozen=True)
class StepMetrics:
    """Everything measured after one step.

    - gap: best minus worst class IoU over ``all``.
    - error_gap: max over class pairs of |err(a) − err(b)|, the left side of the FairCL paper's Eqn 2 with the
      error rate 1 − recall as its loss.
    - rarest_third, frequent_third: mean IoU of the ⌊N/3⌋ (at least one) of the N present classes with fewest and
      with most truth pixels; never the background.
    - convention: name of the evaluation convention by which pixels were counted.
    - images: which images were evaluated, "test" or "validation".
    """

    step: int
    background: bool
    classes: tuple[ClassMetrics, ...]
    groups: Mapping[str, GroupMetrics]
    gap: float
    error_gap: float
    rarest_third: float
    frequent_third: float
    pixel_accuracy: float
    mean_accuracy: float
    convention: str = "full"
    images: str = "test"

    @property
    def worst(self) -> ClassMetrics | None:
        """Present class with the lowest IoU, background included; None if no class is present."""
        return min(self._present(), key=lambda c: c.iou, default=None)

    @property
    def best(self) -> ClassMetrics | None:
        """Present class with the highest IoU, background included; None if no class is present."""
        return max(self._present(), key=lambda c: c.iou, default=None)

    @property
    def rare_ids(self) -> tuple[int, ...]:
        """Raw ids of the classes behind ``rarest_third``, rarest first."""
        return tuple(c.id for c in _thirds(self.classes, self.background)[0])

    @property
    def published_groups(self) -> dict[str, str]:
        """What published tables call ``initial`` and ``added``: ``{"initial": "0-15", "added": "16-20"}``.

        Classes are numbered in the order of learning from 1, and background is 0. Empty if no class was added.
        """
        first, last = int(not self.background), len(self.classes) - self.background
        initial = first + sum(c.learned_at == 0 for c in self.classes) - 1
        if initial == last:
            return {}
        return {"initial": _numbers(first, initial), "added": _numbers(initial + 1, last)}

    @property
    def several_additions(self) -> bool:
        """Whether classes were added at several steps, so ``initial`` and ``added`` are not ``old`` and ``new``."""
        return any(0 < c.learned_at < self.step for c in self.classes)

    def _present(self) -> list[ClassMetrics]:
        return [c for c in self.classes if c.pixels > 0]

    def to_json(self) -> dict[str, Any]:
        """Plain Python for JSON, NaN as None. The keys up to ``classes`` are a public contract."""
        groups = self.groups
        out = {
            "step": self.step,
            "miou": {g: groups[g].miou for g in STEP_GROUPS},
            "std": groups["all"].std,
            "gap": self.gap,
            "error_gap": self.error_gap,
            "worst": _name_and_iou(self.worst),
            "classes": [asdict(c) for c in self.classes],
            "best": _name_and_iou(self.best),
            "miou_without_background": {g: groups[g].miou_without_background for g in STEP_GROUPS},
            "std_groups": {g: groups[g].std for g in STEP_GROUPS},
            "std_groups_without_background": {g: groups[g].std_without_background for g in STEP_GROUPS},
            "initial": asdict(groups["initial"]),
            "added": asdict(groups["added"]),
            "rarest_third": self.rarest_third,
            "frequent_third": self.frequent_third,
            "pixel_accuracy": self.pixel_accuracy,
            "mean_accuracy": self.mean_accuracy,
            "background": self.background,
            "convention": self.convention,
            "images": self.images,
        }
        plain: dict[str, Any] = nan_to_none(out)
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepMetrics:
        """Inverse of ``to_json``; further keys (time, forgetting …) are skipped."""
        groups = {
            g: GroupMetrics(
                _number(data["miou"][g]),
                _number(data["std_groups"][g]),
                _number(data["miou_without_background"][g]),
                _number(data["std_groups_without_background"][g]),
            )
            for g in STEP_GROUPS
        }
        for g in ("initial", "added"):
            groups[g] = GroupMetrics(**{key: _number(value) for key, value in data[g].items()})
        classes = tuple(
            ClassMetrics(**{**c, "iou": _number(c["iou"]), "error_rate": _number(c["error_rate"])})
            for c in data["classes"]
        )
        numbers = ("gap", "error_gap", "rarest_third", "frequent_third", "pixel_accuracy", "mean_accuracy")
        measured = {key: _number(data[key]) for key in numbers}
        # Records of earlier versions name neither.
        convention, images = data.get("convention", "full"), data.get("images", "test")
        return cls(data["step"], data["background"], classes, groups, **measured, convention=convention, images=images)


def summarise(
    counts: Tensor,
    *,
    ids: Sequence[int],
    names: Sequence[str],
    learned_at: Sequence[int],
    step: int,
    background: bool,
    background_absent: bool = False,
    convention: str = "full",
    images: str = "test",
) -> StepMetrics:
    """Reduce a confusion matrix to the metrics of a step.

    Shapes: counts (C, C), rows truth; ids, names, learned_at of length C describe the network's channels in order.
    With ``background`` channel 0 is the background class; with ``background_absent`` too it is not scored, because its
    truth pixels are of classes not learned yet. A joint run passes the last step and the continual task's
    ``learned_at``, so that its old and new classes are those of the runs it is compared with.
    """
    size = counts.shape[0]
    if counts.shape != (size, size) or not len(ids) == len(names) == len(learned_at) == size:
        raise ValueError(
            f"counts of shape {tuple(counts.shape)} with {len(ids)} ids, {len(names)} names and "
            f"{len(learned_at)} learned_at; expected (C, C) and C of each."
        )
    learned = [0, *learned_at[1:]] if background else list(learned_at)
    if max(learned) > step:
        late = names[learned.index(max(learned))]
        raise ValueError(f"Class '{late}' is learned at step {max(learned)}, after the evaluated step {step}.")

    counts = counts.cpu()
    overlaps, errors, truth = (100 * iou(counts)).tolist(), (100 * error_rate(counts)).tolist(), pixels(counts).tolist()
    if background and background_absent:
        overlaps[0], errors[0], truth[0] = math.nan, math.nan, 0
    rates = zip(ids, names, overlaps, truth, strict=True)
    classes = tuple(ClassMetrics(*r, e, s) for r, e, s in zip(rates, errors, learned, strict=True))
    ious, misses = [c.iou for c in classes], [c.error_rate for c in classes]
    at = torch.tensor(learned)
    chosen = {"old": at < step, "new": at == step, "all": at <= step, "initial": at == 0, "added": at > 0}
    foreground = torch.arange(size) >= int(background)
    values = torch.tensor(ious, dtype=torch.float64)
    rare, frequent = _thirds(classes, background)
    total = int(counts.sum())
    return StepMetrics(
        step=step,
        background=background,
        classes=classes,
        groups={g: _group(values[chosen[g]], values[chosen[g] & foreground]) for g in GROUPS},
        gap=_range(ious),
        error_gap=_range(misses),
        rarest_third=mean(c.iou for c in rare),
        frequent_third=mean(c.iou for c in frequent),
        pixel_accuracy=100 * int(counts.trace()) / total if total else math.nan,
        mean_accuracy=100 - mean(misses),
        convention=convention,
        images=images,
    )


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are not NaN; NaN if there is none."""
    kept = [v for v in values if not math.isnan(v)]
    return math.fsum(kept) / len(kept) if kept else math.nan


def nan_to_none(value: Any) -> Any:
    """Replace NaN by None in nested dicts and lists: JSON has null, not NaN."""
    if isinstance(value, dict):
        return {key: nan_to_none(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_none(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _group(values: Tensor, foreground: Tensor) -> GroupMetrics:
    return GroupMetrics(mean(values.tolist()), _std(values), mean(foreground.tolist()), _std(foreground))


def _std(values: Tensor) -> float:
    kept = values[~values.isnan()]
    return float(kept.std(correction=0)) if len(kept) else math.nan


def _range(values: Sequence[float]) -> float:
    """Largest difference between two of the values; the same as the maximum over all pairs."""
    kept = [v for v in values if not math.isnan(v)]
    return max(kept) - min(kept) if kept else math.nan


def _thirds(classes: Sequence[ClassMetrics], background: bool) -> tuple[list[ClassMetrics], list[ClassMetrics]]:
    """Rarest and most frequent third of the present foreground classes; equal counts keep the channel order."""
    ranked = sorted((c for c in classes[int(background) :] if c.pixels > 0), key=lambda c: c.pixels)
    size = max(1, len(ranked) // 3)
    return ranked[:size], ranked[::-1][:size]


def _numbers(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _name_and_iou(of: ClassMetrics | None) -> dict[str, Any]:
    return {"name": of.name if of else None, "iou": of.iou if of else None}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
