"""What ``faircl data`` shows to people: readers, class statistics, problems of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from faircl.data.class_stats import DataStats
from faircl.integrity.findings import KINDS, Report
from faircl.registry import READERS

FIRST = 10
"""Problems of each kind that are named unless all are wanted."""


def reader_summary(name: str) -> dict[str, Any]:
    """Return what the list says of a reader, as plain values."""
    reader = READERS.get(name)
    return {"name": name, "summary": reader.summary, "tasks": list(getattr(reader, "tasks", ()))}


def reader_detail(name: str) -> dict[str, Any]:
    """Return what there is to say of a reader, as plain values: the files it expects and its settings."""
    reader = READERS.get(name)
    settings = [
        {"name": key, "default": _plain(field.get_default(call_default_factory=True)), "description": field.description}
        for key, field in reader.Config.model_fields.items()
        if key != "name"
    ]
    return reader_summary(name) | {"layout": getattr(reader, "layout", ""), "settings": settings}


def print_readers(console: Console) -> None:
    """Print all readers."""
    table = Table("name", "published tasks", "summary", box=None, header_style="bold")
    for row in map(reader_summary, READERS.names()):
        table.add_row(*(Text(cell) for cell in (row["name"], ", ".join(row["tasks"]), row["summary"])))
    console.print(table)


def print_reader(console: Console, name: str) -> None:
    """Print one reader."""
    about = reader_detail(name)
    console.print(Text(name, "bold"), Text(about["summary"]), soft_wrap=True)
    if about["tasks"]:
        console.print(Text(f"published tasks: {', '.join(about['tasks'])}"), soft_wrap=True)
    if about["layout"]:
        console.print(Text("\nbelow its root", "bold"))
        console.print(Text(about["layout"]), soft_wrap=True)
    console.print()
    table = Table("setting", "default", "description", box=None, header_style="bold")
    for row in about["settings"]:
        default = "" if row["default"] is None else str(row["default"])
        table.add_row(*(Text(cell) for cell in (f"data.{row['name']}", default, row["description"] or "")))
    console.print(table)


def print_stats(console: Console, title: str, stats: DataStats, steps: Mapping[int, int] | None) -> None:
    """Print the classes of a split, most frequent first."""
    words = (
        f"{len(stats.classes)} classes; entropy {stats.entropy:.3f} (1: all classes equal); major: the "
        f"{len(stats.major)} most frequent, {100 * stats.major_share:.1f} % of the pixels; ignored: "
        f"{100 * stats.ignored_share:.1f} % of all pixels"
    )
    table = Table(title=Text(title), header_style="bold")
    table.add_column("class")
    for name in ("id", "pixels", "share in %", "images"):
        table.add_column(name, justify="right")
    table.add_column("group")
    if steps is not None:
        table.add_column("step", justify="right")
    major = set(stats.major)
    for one in stats.ranked:
        numbers = (str(one.id), f"{one.pixels:,}", f"{100 * one.share:.3f}", f"{one.images:,}")
        step = () if steps is None else (str(steps.get(one.id, "–")),)
        table.add_row(Text(one.name), *numbers, "major" if one.id in major else "minor", *step)
    console.print(table)
    console.print(Text(words), soft_wrap=True)


def print_report(console: Console, report: Report, everything: bool) -> None:
    """Print the kinds of problems with what to do, then the problems themselves."""
    grouped = report.by_kind()
    skipped = sorted({file for files in report.skipped.values() for file in files})  # some lie among several splits
    rows: list[tuple[str, str, int, str]] = [
        (KINDS[kind].severity, kind, len(found), KINDS[kind].advice) for kind, found in grouped.items()
    ]
    if skipped:
        rows.append(("note", "skipped", len(skipped), "nothing, if they are meant to belong to no image"))
    if rows:
        table = Table("", "problem", "count", "what to do", box=None, header_style="bold")
        for severity, kind, count, advice in rows:
            table.add_row(Text(severity, _STYLES[severity]), kind, str(count), advice)
        console.print(table)
    for kind, found in grouped.items():
        _print_lines(console, kind, [f"{one.split}: {one.message}" for one in found], everything)
    _print_lines(console, "skipped", skipped, everything)
    checked = ", ".join(f"{split} {count}" for split, count in report.checked.items())
    problems = [_number(count, word) for word in ("error", "warning") if (count := report.count(word))]
    if rows:
        console.print()
    console.print(Text(f"checked: {checked}; {', '.join(problems) or 'no problem'}"))


_STYLES = {"error": "red", "warning": "yellow", "note": ""}


def _print_lines(console: Console, heading: str, lines: list[str], everything: bool) -> None:
    if not lines:
        return
    console.print(Text(f"\n{heading}", "bold"))
    for line in lines if everything else lines[:FIRST]:
        console.print(Text(f"  {line}"), soft_wrap=True)
    if not everything and len(lines) > FIRST:
        console.print(Text(f"  … and {len(lines) - FIRST} more; --all names them"))


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _plain(value: Any) -> Any:
    """Return a setting's default as JSON has it."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
