"""The confusion matrix of a whole evaluation, and the per-class rates that follow from it.

Every rate is a fraction in [0, 1], and NaN for a class without a truth pixel, even if it was predicted; such a class is
left out of every mean. MiB, PLOP and their successors do the
same; SSUL and DKD count such a class as 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.labels import IGNORE


class ConfusionMatrix:
    """Counts ``n[i, j]`` of pixels of true class i predicted as class j, added up over an evaluation.

    Shape: ``counts`` (C, C) int64; rows are the truth, columns the prediction.

    >>> matrix = ConfusionMatrix(2)
    >>> matrix.update(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, IGNORE]))
    >>> matrix.counts.tolist()
    [[1, 1], [0, 1]]
    """

    def __init__(self, num_classes: int, device: torch.device | str = "cpu") -> None:
        if num_classes < 1:
            raise ValueError(f"A confusion matrix needs at least one class, got num_classes={num_classes}.")
        self.counts = torch.zeros(num_classes, num_classes, dtype=torch.int64, device=device)

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return self.counts.shape[0]

    @torch.no_grad()
    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Count the pixels of one batch; those with ``target == IGNORE`` are skipped.

        Shapes: prediction and target alike, any shape, any integer type; counted on the prediction's device.

        Raises:
            ValueError: shapes differ, a tensor is not of integers, or a counted value lies outside [0, C).
        """
        if prediction.shape != target.shape:
            raise ValueError(
                f"Prediction {tuple(prediction.shape)} and target {tuple(target.shape)} differ in shape; "
                "bring the prediction to the size of the target before counting."
            )
        # int64 first: uint16 masks lack most operators, and uint8 products would wrap around.
        pred, true = _integers(prediction, "prediction").long(), _integers(target, "target").long()
        true = true.to(pred.device)
        counted = true != IGNORE
        pred, true = pred[counted], true[counted]
        self._check(true, "target", f" (the value {IGNORE} is ignored)")
        self._check(pred, "prediction")
        flat = torch.bincount(true * self.num_classes + pred, minlength=self.num_classes**2)
        self.counts += flat.view_as(self.counts).to(self.counts.device)

    def _check(self, values: Tensor, kind: str, note: str = "") -> None:
        outside = (values < 0) | (values >= self.num_classes)
        if bool(outside.any()):
            value = int(values[outside][0])
            raise ValueError(f"{kind} has the value {value}, expected a class in [0, {self.num_classes}){note}.")


def pixels(counts: Tensor) -> Tensor:
    """Truth pixels per class, Σ_j n[c, j]. Shapes: counts (C, C) → (C,) int64."""
    return counts.sum(dim=1)


def iou(counts: Tensor) -> Tensor:
    """Intersection over union per class, n[c, c] / (Σ_j n[c, j] + Σ_i n[i, c] − n[c, c]); NaN where absent.

    Shapes: counts (C, C) → (C,) float64.
    """
    true = pixels(counts)
    hit = counts.diagonal()
    return _ratio(hit, true + counts.sum(dim=0) - hit, absent=true == 0)


def error_rate(counts: Tensor) -> Tensor:
    """Share of the class's truth pixels that were missed, 1 − n[c, c] / Σ_j n[c, j]; NaN where absent.

    Shapes: counts (C, C) → (C,) float64.
    """
    true = pixels(counts)
    return _ratio(true - counts.diagonal(), true, absent=true == 0)


def _ratio(part: Tensor, whole: Tensor, absent: Tensor) -> Tensor:
    return (part.double() / whole.double()).masked_fill(absent, torch.nan)


def _integers(values: Tensor, kind: str) -> Tensor:
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise ValueError(f"{kind} has type {values.dtype}, expected integer class indices; take the argmax first.")
    return values
