"""The result of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faircl.report.comparison.rows import Row

if TYPE_CHECKING:
    from faircl.fairness.difference import Change
    from faircl.report.comparison.evidence import RowChange
    from faircl.report.comparison.published import PublishedRow
    from faircl.runs.run import Run
    from faircl.tables import Table


@dataclass(frozen=True)
class Comparison:
    """Runs side by side: each with its label, a row per label, warnings, and the page where one was written.

    - against: label of the row that the others are compared with.
    - changes: by label, how a row differs from that one, with intervals of the paired bootstrap over shared images;
      rows without records of every image are not among them.
    - front: the labels on the Pareto front of mIoU and each spread, and forgetting, which are highlighted there only.
    - levelled_down: rows passed over for it, as they are even at the cost of their strong classes, each with the row
      that has a higher mIoU and serves the worst third of the classes no worse.
    - published: rows of published tables of the same benchmark, which are claims of their authors.
    """

    runs: tuple[tuple[str, Run], ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    page: Path | None
    against: str = ""
    changes: Mapping[str, RowChange] = field(default_factory=dict, repr=False)
    front: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    levelled_down: Mapping[str, str] = field(default_factory=dict, repr=False)
    published: tuple[PublishedRow, ...] = field(default=(), repr=False)

    @property
    def table(self) -> Table:
        """One row per label; ``table.markdown()``, ``table.latex()`` and ``table.csv()`` print it."""
        from faircl.report.comparison.tables import main_table

        return main_table(self)

    @property
    def class_table(self) -> Table:
        """One row per class and label: IoU, its difference from the row compared with, and the interval of that."""
        from faircl.report.comparison.tables import class_table

        return class_table(self)

    @property
    def summary(self) -> tuple[str, ...]:
        """Which row is best in what, in plain sentences."""
        from faircl.report.comparison.summary import summary

        return summary(self)

    def first_runs(self) -> dict[str, Run]:
        """Return the first run of every label."""
        return dict(reversed(self.runs))

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; the keys are a public contract."""
        from dataclasses import asdict

        return {
            "rows": [asdict(row) for row in self.rows],
            "notes": list(self.notes),
            "page": None if self.page is None else str(self.page),
            "against": self.against,
            "front": {name: list(labels) for name, labels in self.front.items()},
            "levelled_down": dict(self.levelled_down),
            "significance": [
                {
                    "label": change.label,
                    "against": change.against,
                    "measures": {name: _plain(one) for name, one in change.measures.items()},
                    "classes": [{"id": one.id, "name": one.name, **_plain(one)} for one in change.classes],
                }
                for change in self.changes.values()
            ],
            "published": [asdict(row) for row in self.published],
            "summary": list(self.summary),
        }


def _plain(change: Change) -> dict[str, Any]:
    ends = change.interval
    return {
        "before": change.before,
        "after": change.after,
        "difference": change.difference,
        "interval": None if ends is None else {"low": ends.low, "high": ends.high},
        "significant": change.significant,
    }
