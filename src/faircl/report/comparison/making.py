"""A comparison from runs and their labels."""

from __future__ import annotations

from collections.abc import Sequence

from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.evidence import gather
from faircl.report.comparison.front import fronts, levelled_down
from faircl.report.comparison.published import published_rows
from faircl.report.comparison.rows import row_of
from faircl.runs.run import Run


def make_comparison(
    runs: Sequence[tuple[str, Run]], against: str, warnings: Sequence[str] = (), *, published: bool = True
) -> Comparison:
    """Compare labelled runs with those of one label.

    Published numbers are added where all runs are of the same benchmark.
    """
    grouped = {label: [run for other, run in runs if other == label] for label in dict(runs)}
    rows = tuple(row_of(label, own) for label, own in grouped.items())
    evidence = gather(grouped)
    changes = {label: evidence.change(against, label) for label in grouped if label != against}
    passed_over = levelled_down(rows, evidence)
    same = published and len({run.task for _, run in runs}) == 1
    theirs = {row.name: row for _, run in runs for row in published_rows(run)} if same else {}
    notes = [f"warning: {text}" for text in warnings]
    if len(rows) > 1:
        notes += [f"note: {text}" for text in evidence.notes]
    return Comparison(
        tuple(runs),
        rows,
        tuple(notes),
        None,
        against,
        {label: change for label, change in changes.items() if change is not None},
        fronts(rows, passed_over),
        passed_over,
        tuple(theirs.values()),
    )
