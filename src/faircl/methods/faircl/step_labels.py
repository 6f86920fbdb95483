"""What the model before a step says about the step's unlabelled pixels: soft labels, or one class each."""

from __future__ import annotations

from typing import Protocol

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


class Assign(Protocol):
    """Gives every pixel one of the old classes, with a doubt if asked for."""

    def __call__(self, output: SegOutput, size: torch.Size, doubt: bool = False) -> Assignment:
        """Return the classes at label size (H, W)."""
        ...


class StepLabels:
    """Labels of the unlabelled pixels of one step, from a scan by the model before it.

    ``soft`` says which kind: soft labels of fixed windows, or a class for every pixel of whole images by ``assign``.
    """

    def __init__(self, config: FairCLConfig, context: StepContext, soft: bool, assign: Assign) -> None:
        self.config, self.context, self._assign = config, context, assign
        self.soft = SoftLabelScan(config.soft_classes, context.old_classes) if soft else None
        self._assigner = RejectingAssigner(context.old_classes, config.reject)

    def add(self, scanned: ScannedBatch) -> None:
        """Add a batch of the scan."""
        unlabelled = scanned.labels == self.context.unlabelled
        if self.soft is None:
            assignment = self._assign(scanned.output, scanned.labels.shape[-2:], doubt=self.config.reject > 0)
            self._assigner.add(scanned.ids, assignment, unlabelled)
            return
        assert scanned.windows is not None, "begin_step asks for fixed windows"
        old, labels = self.context.old_classes, scanned.labels
        new = (labels >= old) & (labels < self.context.classes)
        self.soft.add(scanned.windows, scanned.output.logits[:, :old], unlabelled, new)

    def store(self) -> float:
        """Give all labels to the step's context; return how many unlabelled pixels are background by them."""
        if self.soft is None:
            self.context.assigned = AssignedLabels()
            return float(self._assigner.store(self.context.assigned)[BACKGROUND])
        self.context.soft = self.soft.gather()
        return self.soft.background_share() * float(self.context.label_pixels[BACKGROUND])

    def protection(self) -> Tensor:
        """Return the offset (K,) that protects old classes at labelled pixels; empty where there is none."""
        if self.soft is None or self.config.protect == 0:
            return torch.zeros(0)
        return protection(self.soft.taken(), self.context.classes, self.config.protect, self.context.background)
