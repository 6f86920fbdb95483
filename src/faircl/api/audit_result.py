"""What an audit found, and its files: audit.json, evaluation.npz and the page report.html."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faircl
from faircl.auditing.limits import LimitCheck
from faircl.errors import UserError
from faircl.fairness.audit import Audit
from faircl.fairness.difference import Difference
from faircl.fairness.record import EvaluationRecord
from faircl.fairness.record_file import RECORD, load_record, save_record
from faircl.files import ELSEWHERE, write_text
from faircl.runs.last_network import last_step
from faircl.runs.reading import METRICS

AUDIT, PAGE = "audit.json", "report.html"
CONTRACT = ("miou", "std", "gap", "error_gap", "worst", "classes")
"""First keys of the JSON; they and the keys of a class id, name, iou, accuracy, pixels are a public contract."""


@dataclass(frozen=True)
class AuditResult:
    """An audit: all measures (``audit``), what they follow from (``record``), and the limits that were checked.

    ``difference`` is against an earlier audit, where one was given; ``notes`` say what was left out; ``lineage`` is
    where the numbers come from.
    """

    audit: Audit
    record: EvaluationRecord = field(repr=False)
    limits: tuple[LimitCheck, ...] = ()
    difference: Difference | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    lineage: dict[str, Any] = field(default_factory=dict)

    @property
    def broken(self) -> tuple[LimitCheck, ...]:
        """The limits that do not hold."""
        return tuple(one for one in self.limits if not one.holds)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, NaN as None, as ``faircl audit --json`` prints them."""
        found = self.audit.to_json()
        return {
            **{key: found.pop(key) for key in CONTRACT},
            **found,
            "limits": [_plain_check(one) for one in self.limits],
            "difference": None if self.difference is None else self.difference.to_json(),
            "notes": list(self.notes),
            "lineage": {"faircl": faircl.__version__, **self.lineage},
        }

    def save(self, out: str | Path, title: str = "Audit") -> Path:
        """Write audit.json, evaluation.npz and report.html into a folder; an earlier audit there is replaced."""
        from faircl.report.audit_page import write_audit_page

        folder = Path(out)
        check_audit_folder(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"Cannot make the folder {folder}: {error.strerror}; choose another with --out.") from None
        (folder / AUDIT).unlink(missing_ok=True)  # an audit is complete when audit.json is there, which comes last
        save_record(self.record, folder / RECORD)
        write_audit_page(
            folder / PAGE,
            self.record,
            self.audit,
            title,
            checks=self.limits,
            difference=self.difference,
            notes=self.notes,
        )
        text = json.dumps({"title": title, **self.to_json()}, indent=2, ensure_ascii=False, allow_nan=False)
        write_text(folder / AUDIT, text + "\n", ELSEWHERE)
        return folder


def check_audit_folder(folder: Path) -> None:
    """Raise a UserError if a folder holds something else than an audit, or the rest of one that was interrupted."""
    try:
        found = {path.name for path in folder.iterdir()} if folder.is_dir() else {""} if folder.exists() else set()
    except OSError as error:
        raise UserError(f"Cannot look at the output {folder}: {error.strerror}; choose another with --out.") from None
    if AUDIT not in found and not found <= {RECORD, PAGE}:
        raise UserError(f"Output {folder} is there already and holds no audit; choose a new folder with --out.")


def open_evaluation(path: str | Path, step: int | None = None) -> EvaluationRecord:
    """Read the record of an evaluation: of a run after a step (by default the last), of an audit, or a file of it."""
    place = Path(path).expanduser()
    if not place.exists():
        raise UserError(f"{place} does not exist; give the folder of a run, the folder of an audit or its {RECORD}.")
    if place.is_file() or (place / RECORD).is_file():
        if step is not None:
            raise UserError(f"{place} is no run and has no steps, but step {step} was asked for; leave --step out.")
        return load_record(place if place.is_file() else place / RECORD)
    files = {int(one.parent.name): one for one in place.glob(f"steps/*/{RECORD}") if one.parent.name.isdecimal()}
    if not files:
        raise UserError(
            f"{place} has no {RECORD}: neither an audit nor a run whose evaluations kept one, as those of earlier "
            "versions of faircl; audit its masks, with --labels, --predictions and --classes."
        )
    known = sorted(files)
    if step is None or step < 0:
        _check_last(place)
    if step is None or -len(known) <= step < 0:
        step = known[-1 if step is None else step]
    if step not in files:
        raise UserError(f"Run {place} has no evaluation of step {step}; it has: {', '.join(map(str, known))}.")
    return load_record(files[step])


def _check_last(run: Path) -> None:
    """Raise a UserError if the step that a run evaluated last has lost its folder: the one before is not the last."""
    last = last_step(run)
    if last is not None and not last.is_dir():
        raise UserError(
            f"{last} is missing, though {METRICS} has its evaluation: the run folder is damaged. Restore it from a "
            "copy, or name a step that is there, with --step."
        )


def _plain_check(check: LimitCheck) -> dict[str, Any]:
    values = check._asdict()
    return {**values, "found": None if math.isnan(check.found) else check.found}
