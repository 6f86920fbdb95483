"""Fairness between classes: the record of an evaluation image by image, the measures that follow from it, audits."""

from faircl.fairness.audit import Audit, ClassAudit, audit_record
from faircl.fairness.difference import Change, ClassChange, Difference, paired_difference
from faircl.fairness.intervals import Interval
from faircl.fairness.lost_pixels import LostPixels, Receiver, earlier_records, lost_pixels
from faircl.fairness.metadata import Attribute, ImageGroup, image_groups
from faircl.fairness.pareto import pareto_front
from faircl.fairness.record import EvaluationRecord, RecordedClass
from faircl.fairness.sizes import SizeStratum
from faircl.fairness.transfer import ClassTransfer, Transfer, transfer

__all__ = [
    "Attribute",
    "Audit",
    "Change",
    "ClassAudit",
    "ClassChange",
    "ClassTransfer",
    "Difference",
    "EvaluationRecord",
    "ImageGroup",
    "Interval",
    "LostPixels",
    "Receiver",
    "RecordedClass",
    "SizeStratum",
    "Transfer",
    "audit_record",
    "earlier_records",
    "image_groups",
    "lost_pixels",
    "paired_difference",
    "pareto_front",
    "transfer",
]
