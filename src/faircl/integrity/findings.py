"""Kinds of problems of a data set, advice for each, and the report of a check."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning"]


class Kind(NamedTuple):
    """Severity of a kind of problem, and advice."""

    severity: Severity
    advice: str


_ERRORS = {
    "unlisted-split": "fix its folders or lists as the sentence says",
    "empty-split": "put images and masks into it, or choose another split",
    "no-mask": "add the masks or remove the images",
    "no-image": "add the images or remove the masks",
    "unreadable-mask": "copy or export them again",
    "unreadable-image": "as the sentence says; if broken, copy or export them again",
    "size-mismatch": "export the masks again at the size of their images",
    "unknown-ids": "add the missing classes, or write these pixels as ignored",
    "unknown-colours": "add the colours to the classes, or export without smoothing",
    "deep-ids": "16-bit masks: write class numbers, not instance numbers, or add the missing classes",
    "rgb-mask": "give every class its colour, or save the masks as index PNGs",
    "grey-rgb-mask": "save one of the three equal channels as an index PNG",
    "jpeg-mask": "export them again as PNG; JPEG has changed their ids",
    "shifted-ids": "use the masks as published, without subtracting one from their ids",
    "leak": "remove the image from one of the splits",
}
_WARNINGS = {
    "duplicate": "remove all but one, unless the image is meant to count more",
    "empty-class": "expected of a part of a data set; otherwise compare the class list with the masks",
    "ignored-mask": "annotate them or leave them out: nothing can be learned from ignored pixels",
    "single-image": "check that the split is whole",
}
KINDS = {kind: Kind("error", advice) for kind, advice in _ERRORS.items()} | {
    kind: Kind("warning", advice) for kind, advice in _WARNINGS.items()
}
"""Every kind of problem, errors first."""


class Fault(NamedTuple):
    """One problem: its kind, the file relative to the root, and a sentence."""

    kind: str
    file: str | None
    message: str


@dataclass(frozen=True)
class Finding:
    """One problem of a split; `file` is relative to the root, or an id if the data is not files, or None."""

    kind: str
    severity: Severity
    split: str
    file: str | None
    message: str


@dataclass
class Report:
    """Result of a check: number of images by split, problems, and skipped files by split."""

    checked: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    skipped: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return not self.count("error")

    def count(self, severity: Severity) -> int:
        """Return the number of errors or warnings."""
        return sum(finding.severity == severity for finding in self.findings)

    def add(self, split: str, fault: Fault) -> None:
        """Add a problem."""
        self.findings.append(Finding(fault.kind, KINDS[fault.kind].severity, split, fault.file, fault.message))

    def by_kind(self) -> dict[str, list[Finding]]:
        """Return the problems by kind, errors first, without empty kinds."""
        grouped: dict[str, list[Finding]] = {kind: [] for kind in KINDS}
        for finding in self.findings:
            grouped[finding.kind].append(finding)
        return {kind: found for kind, found in grouped.items() if found}

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "ok": self.ok,
            "checked": self.checked,
            "findings": [asdict(finding) for finding in self.findings],
            "skipped": {split: list(files) for split, files in self.skipped.items()},
        }
