"""Tables and texts of ``faircl data``: readers, class statistics, problems of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from faircl.cli.output import Output
from faircl.cli.settings_view import settings_json, settings_table
from faircl.data.class_stats import DataStats
from faircl.integrity.findings import KINDS, Report
from faircl.registry import READERS
from faircl.tables import Column, Styled, Table, Value

FIRST = 10
"""Problems of each kind that are named unless all are wanted."""


def reader_summary(name: str) -> dict[str, Any]:
    """Return what the list says of a reader, as plain values."""
    reader = READERS.get(name)
    return {"name": name, "summary": reader.summary, "tasks": list(getattr(reader, "tasks", ()))}


def reader_detail(name: str) -> dict[str, Any]:
    """Return what there is to say of a reader, as plain values: the files it expects and its settings."""
    reader = READERS.get(name)
    settings = settings_json(reader.Config)
    return reader_summary(name) | {"layout": getattr(reader, "layout", ""), "settings": settings}


def print_readers(output: Output) -> None:
    """Print all readers."""
    rows = map(reader_summary, READERS.names())
    columns = [Column("name", wrap=False), Column("published tasks"), Column("summary")]
    output.table(Table(columns, [[row["name"], ", ".join(row["tasks"]) or None, row["summary"]] for row in rows]))


def print_reader(output: Output, name: str) -> None:
    """Print one reader."""
    about = reader_detail(name)
    output.text(Text(name, "bold"), about["summary"])
    if about["tasks"]:
        output.text(f"published tasks: {', '.join(about['tasks'])}")
    if about["layout"]:
        output.text(Text("\nbelow its root", "bold"))
        output.text(about["layout"])
    output.text("")
    output.table(settings_table(about["settings"], "data."))


def print_stats(
    output: Output, title: str, stats: DataStats, steps: Mapping[int, int] | None, validation: int = 0
) -> None:
    """Print the classes of a split, most frequent first, and how many of its images are for ``validation``."""
    words = (
        f"{len(stats.classes)} classes; entropy {stats.entropy:.3f} (1: all classes equal); major: the "
        f"{len(stats.major)} most frequent, {100 * stats.major_share:.1f} % of the pixels; ignored: "
        f"{100 * stats.ignored_share:.1f} % of all pixels"
    )
    columns = [Column("class"), Column("id"), Column("pixels"), Column("share", 3, kind="percent"), Column("images")]
    columns += [Column("group"), *([] if steps is None else [Column("step")])]
    rows = [
        [
            *(one.name, one.id, one.pixels, one.share, one.images),
            "major" if one.id in stats.major else "minor",
            *([] if steps is None else [steps.get(one.id)]),
        ]
        for one in stats.ranked
    ]
    output.table(Table(columns, rows, title=title, boxed=True))
    output.text(words)
    if validation:
        output.text(f"validation images: {validation} of {stats.images}, counted above")


def print_report(output: Output, report: Report, everything: bool) -> None:
    """Print the kinds of problems with what to do, then the problems themselves."""
    grouped = report.by_kind()
    skipped = sorted({file for files in report.skipped.values() for file in files})  # may be listed by several splits
    rows: list[list[Value]] = [
        [Styled(KINDS[kind].severity, _STYLES[KINDS[kind].severity]), kind, len(found), KINDS[kind].advice]
        for kind, found in grouped.items()
    ]
    if skipped:
        rows.append(["note", "skipped", len(skipped), "nothing, if they are meant to belong to no image"])
    if rows or output.form != "terminal":
        columns = [Column("severity"), Column("problem", wrap=False), Column("count"), Column("what to do")]
        output.table(Table(columns, rows))
    for kind, found in grouped.items():
        _print_lines(output, kind, [f"{one.split}: {one.message}" for one in found], everything)
    _print_lines(output, "skipped", skipped, everything)
    checked = ", ".join(f"{split} {count}" for split, count in report.checked.items())
    problems = [_number(count, word) for word in ("error", "warning") if (count := report.count(word))]
    if rows:
        output.text("")
    output.text(f"checked: {checked}; {', '.join(problems) or 'no problem'}")


_STYLES = {"error": "red", "warning": "yellow"}


def _print_lines(output: Output, heading: str, lines: list[str], everything: bool) -> None:
    if not lines:
        return
    output.text(Text(f"\n{heading}", "bold"))
    for line in lines if everything else lines[:FIRST]:
        output.text(f"  {line}")
    if not everything and len(lines) > FIRST:
        output.text(f"  … and {len(lines) - FIRST} more; --all names them")


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
