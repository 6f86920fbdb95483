"""Fairness between classes: the record of an evaluation image by image, the measures that follow from it, audits."""

from faircl.fairness.audit import Audit, ClassAudit, audit_record
from faircl.fairness.intervals import Interval
from faircl.fairness.record import EvaluationRecord, RecordedClass

__all__ = ["Audit", "ClassAudit", "EvaluationRecord", "Interval", "RecordedClass", "audit_record"]
