"""The tables of a comparison: a row per label, in several layouts; a row per class and label; a row per run.

A spread is marked as the best only on its front with mIoU (``front``), published numbers never.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from faircl.metrics import StepMetrics
from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.evidence import RowChange
from faircl.report.comparison.front import FRONTED, lowest
from faircl.report.comparison.published import PublishedRow, published_rows
from faircl.report.comparison.rows import Row
from faircl.tables import Column, Mark, MeanStd, Plain, Styled, Table, Value, show

Layout = Literal["full", "paper", "ablation", "groups"]
OURS, PUBLISHED = "our runs", "published, not reproduced here"
_FULL = {
    "all": "all",
    "std": "STD",
    "gap": "gap",
    "error_gap": "error gap",
    "rarest_third": "rarest\nthird",
    "frequent_third": "frequent\nthird",
    "forgetting": "forgetting",
    "average": "avg",
    "worst_iou": "worst\nIoU",
}
_ALIASES = {"initial": "old", "added": "new"}
"""After a single addition, groups by the step that learned their classes are the old and the new ones."""
_DETAILS = ("error_gap", "frequent_third", "average")


def main_table(comparison: Comparison, layout: Layout = "full", published: bool = True) -> Table:
    """One row per label.

    Layouts: ``full``, every measure; as the paper prints them: ``paper``, mean IoUs by task; ``ablation``, mean IoU and
    STD of groups by the step that learned them; ``groups``, of major and minor classes.
    """
    columns = _columns(comparison, layout)
    rows = comparison.rows
    full = layout == "full"
    several = full and any(len(row.runs) > 1 for row in rows)
    head = [Column("method" if full else "Method"), *([Column("runs", wrap=False)] if several else [])]
    tail = [Column("worst", detail=True)] if full else []
    cells: list[list[Value]] = []
    for row in rows:
        numbers = [_cell(comparison, row, name) for name in columns]
        count: list[Value] = [len(row.runs)] if several else []
        worst: list[Value] = [", ".join(row.worst[:2]) or None] if tail else []
        cells.append([row.label, *count, *numbers, *worst])
    theirs = _published(comparison, layout) if published else ()
    if theirs:
        about = [Styled(None, best=False)] * several
        missing = [None] * len(tail)
        own = [[OURS, *cell] for cell in cells]
        cells = [
            [PUBLISHED, f"{row.name}†", *about, *(_published_cell(row, name, columns) for name in columns), *missing]
            for row in theirs
        ]
        cells = [*own, *cells] if full else [*cells, *own]
        head = [Column("results"), *head]
    return Table(
        [*head, *columns.values(), *tail],
        cells,
        title=f"{comparison.runs[0][1].task}, {comparison.runs[0][1].model}",
        caption=f"IoU in percent after the last step, convention {comparison.runs[0][1].final.convention}",
        grouped=bool(theirs),
        footnotes=_footnotes(comparison, theirs, columns),
    )


def class_table(comparison: Comparison) -> Table:
    """One row per class and label: its IoU, the difference from the row compared with, the interval; largest first."""
    ious, pixels = class_ious(comparison), _pixels(comparison)
    reference = ious[comparison.against]
    names = {c.id: c.name for _, run in reversed(comparison.runs) for c in run.final.classes}
    rows: list[list[Value]] = []
    marked = 0
    for row in comparison.rows:
        if row.label == comparison.against and len(comparison.rows) > 1:
            continue
        change = comparison.changes.get(row.label)
        known = {one.id: one for one in change.classes} if change else {}
        differences = {id: iou - reference.get(id, math.nan) for id, iou in ious[row.label].items()}
        for id in sorted(differences, key=lambda id: _size(differences[id])):
            one = known.get(id)
            ends = one.interval if one else None
            mark = _mark(differences[id]) if one and one.significant else None
            marked += mark is not None
            numbers = (reference.get(id), ious[row.label][id], Styled(differences[id], mark=mark))
            rows.append([row.label, names[id], pixels.get(id), *numbers, *(ends or (None, None))])
    columns = [Column("run"), Column("class"), Column("pixels"), Column(f"IoU of {comparison.against}")]
    columns += [Column(name) for name in ("IoU", "difference", "low", "high")]
    notes = [_chance(len(rows), marked)] if comparison.changes else []
    title = f"IoU of every class against {comparison.against}"
    return Table(columns, rows, title=title, grouped=True, footnotes=notes)


def run_table(comparison: Comparison) -> Table:
    """One row per run."""
    from faircl.report.comparison.rows import measures

    columns = _columns(comparison, "full")
    rows: list[list[Value]] = []
    for label, run in comparison.runs:
        found, worst = measures(run), run.final.worst
        rows.append([label, str(run.folder), *(found[name] for name in columns), worst.name if worst else None])
    plain = [column._replace(best=None) for column in columns.values()]
    return Table([Column("method"), Column("run"), *plain, Column("worst class")], rows)


def class_ious(comparison: Comparison) -> dict[str, dict[int, float]]:
    """Return by label and class id the IoU after the last step, the mean over the runs of the label."""
    found: dict[str, dict[int, list[float]]] = {}
    for label, run in comparison.runs:
        for c in run.final.classes:
            found.setdefault(label, {}).setdefault(c.id, []).append(c.iou)
    return {label: {id: sum(x) / len(x) for id, x in own.items()} for label, own in found.items()}


def shared_groups(finals: Sequence[StepMetrics]) -> dict[str, str]:
    """Return ``published_groups`` if they are the same for all runs and not their old and new classes; else nothing."""
    first = finals[0].published_groups
    shown = all(final.published_groups == first and final.several_additions for final in finals)
    return first if shown else {}


def _columns(comparison: Comparison, layout: Layout) -> dict[str, Column]:
    """Return the columns of numbers by the measure that they show."""
    finals = [run.final for _, run in comparison.runs]
    if layout == "full":
        names = {"old": "old", "new": "new"} | shared_groups(finals) | _FULL
        return {
            name: Column(text, 1, None if name in FRONTED else "max", wrap=False, detail=name in _DETAILS)
            for name, text in names.items()
        }
    if layout == "groups":
        pairs = {"major": "Major group", "minor": "Minor group"}
    else:
        pairs = (finals[0].published_groups or {}) | {"all": "all", "average": "avg"}
    if layout == "paper":
        run = comparison.runs[0][1]
        steps = max(len(run.scenario_tree.get("steps", ())) for _, run in comparison.runs)
        task = f"{run.scenario_tree.get('task') or run.task} ({steps} steps)"
        return {name: Column(text, 2, "max", group=task) for name, text in pairs.items()}
    found = {}
    for name, text in pairs.items():
        found[name] = Column("mIoU", 2, "max", group=text)
        if name != "average":
            found["std" if name == "all" else f"{name}_std"] = Column("STD", 2, group=text)
    return found


def _cell(comparison: Comparison, row: Row, name: str) -> Value:
    value: Plain = MeanStd(row.mean[name], row.spread[name]) if len(row.runs) > 1 else row.mean[name]
    change = comparison.changes.get(row.label)
    several = comparison.runs[0][1].final.several_additions
    mark = _measure_mark(change, name if several else _ALIASES.get(name, name)) if change else None
    best = None
    if len({show(other.mean[name], 1) for other in comparison.rows}) < 2:
        best = False  # nothing stands out
    elif name in FRONTED:
        front = comparison.front.get(name, ())
        least = lowest(comparison.rows, front, name)
        best = least is not None and row.label in front and show(row.mean[name], 1) == show(least, 1)
    return Styled(value, mark=mark, best=best)


def _measure_mark(change: RowChange, name: str) -> Mark | None:
    """Return whether a measure is significantly better or worse than that of the row compared with.

    A spread that falls is no merit where the mean IoU falls with it, and one that rises no fault where it rises.
    """
    one, mean = change.measures.get(name), change.measures["all"]
    if one is None or not one.significant:
        return None
    mark = _mark(-one.difference if name in FRONTED else one.difference)
    against = name in FRONTED and mean.significant and _mark(mean.difference) != mark
    return None if against else mark


def _published(comparison: Comparison, layout: Layout) -> tuple[PublishedRow, ...]:
    if layout in ("full", "paper") or not comparison.published:
        return comparison.published
    return published_rows(comparison.runs[0][1], "terms" if layout == "ablation" else "groups")


def _published_cell(row: PublishedRow, name: str, columns: Mapping[str, Column]) -> Styled:
    """Return a number of a published row; after one addition its initial and added classes are the old and new ones."""
    names = [name]
    if "initial" not in columns:
        names += [group for group, alias in _ALIASES.items() if alias == name]
    value = next((row.numbers[one] for one in names if one in row.numbers), None)
    return Styled(value, "dim", best=False)


def _footnotes(comparison: Comparison, theirs: Sequence[PublishedRow], columns: Collection[str]) -> list[str]:
    notes, also = [], "; on STD only where the mean IoU does not change the other way"
    if any(len(row.runs) > 1 for row in comparison.rows):
        notes.append("± is the standard deviation over the runs of a row.")
    tested = {_ALIASES.get(name, name) for name in columns} | set(columns)
    if any(tested & change.measures.keys() for change in comparison.changes.values()):
        notes.append(
            f"▲ better, ▼ worse than {comparison.against}: the 95 % interval of the difference, from a paired "
            f"bootstrap over the images, excludes 0{also if 'std' in columns else ''}."
        )
    if theirs:
        sources = ", ".join(dict.fromkeys(row.source for row in theirs))
        notes.append(f"† As published ({sources}), claims of their authors that were not reproduced here; not ranked.")
    return notes


def _chance(count: int, marked: int) -> str:
    return (
        "low, high: 95 % interval of the difference, from a paired bootstrap over the images; ▲ ▼ where it excludes 0. "
        f"{marked} of {count} differences are marked; if nothing differed, about {count / 20:.0f} would be by chance."
    )


def _mark(difference: float) -> Mark:
    return "better" if difference > 0 else "worse"


def _size(difference: float) -> float:
    return math.inf if math.isnan(difference) else -abs(difference)


def _pixels(comparison: Comparison) -> dict[int, int]:
    return {c.id: c.pixels for _, run in reversed(comparison.runs) for c in run.final.classes}
