"""What the model before a step says about the step's unlabelled pixels: soft labels, or one class each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from faircl.labels import BACKGROUND
from faircl.loading.assigned_labels import AssignedLabels
from faircl.methods.assignment import Assignment, RejectingAssigner
from faircl.methods.base import ScannedBatch, StepContext
from faircl.methods.faircl.config import FairCLConfig
from faircl.methods.faircl.protection import protection
from faircl.methods.faircl.soft_labels import SoftLabelScan
from faircl.models.segmenter import SegOutput


class StepLabels:
    """Labels of the unlabelled pixels of one step, from a scan by the model before it.

    With fixed windows (``context.windows`` above 0) they are soft labels of these; otherwise ``assign`` maps the
    network's output for whole images to one old class per pixel of the label size (H, W), with a doubt if ``reject`` is
    above 0.
    """

    def __init__(
        self, config: FairCLConfig, context: StepContext, assign: Callable[[SegOutput, torch.Size], Assignment]
    ) -> None:
        self.config, self.context, self._assign = config, context, assign
        self.soft = SoftLabelScan(config.soft_classes, context.old_classes) if context.windows > 0 else None
        self._assigner = RejectingAssigner(context.old_classes, config.reject)

    def add(self, scanned: ScannedBatch) -> None:
        """Add a batch of the scan."""
        unlabelled = scanned.labels == self.context.unlabelled
        if self.soft is None:
            assignment = self._assign(scanned.output, scanned.labels.shape[-2:])
            self._assigner.add(scanned.ids, assignment, unlabelled)
            return
        assert scanned.windows is not None, "a step with context.windows scans fixed windows"
        old, labels = self.context.old_classes, scanned.labels
        new = (labels >= old) & (labels < self.context.classes)
        self.soft.add(scanned.windows, scanned.output.logits[:, :old], unlabelled, new)

    def store(self) -> float:
        """Set ``context.soft`` or ``context.assigned``; return the number of unlabelled pixels that are background."""
        if self.soft is None:
            self.context.assigned = AssignedLabels()
            return float(self._assigner.store(self.context.assigned)[BACKGROUND])
        self.context.soft = self.soft.gather()
        return self.soft.background_share() * float(self.context.label_pixels[BACKGROUND])

    def protection(self) -> Tensor:
        """Return the offset (C,) of the logits at labelled pixels; empty without soft labels or with ``protect`` 0."""
        if self.soft is None or self.config.protect == 0:
            return torch.zeros(0)
        return protection(self.soft.taken(), self.context.classes, self.config.protect, self.context.background)
