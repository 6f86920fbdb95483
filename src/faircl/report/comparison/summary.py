"""A comparison in plain sentences: who is most accurate, who is most even without having paid for it with accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.front import levelled_down_in, lowest
from faircl.report.comparison.rows import Row
from faircl.tables import show

MOST = 4
"""Runs that a sentence names, the last of them standing for all others if there are more."""
NAMES = {"std": "STD", "gap": "gap between best and worst class"}


def summary(comparison: Comparison) -> tuple[str, ...]:
    """Return the sentences; none for a single row."""
    rows = comparison.rows
    if len(rows) < 2:
        return ()
    text = [
        _highest(rows, "all", "Highest mean IoU"),
        _highest(rows, "rarest_third", "Highest mean IoU on the rarest third"),
    ]
    text += [_lowest_spread(comparison, name) for name in NAMES]
    return tuple(sentence for sentence in (*text, _significant(comparison)) if sentence)


def _highest(rows: Sequence[Row], name: str, words: str) -> str:
    known = [row for row in rows if not math.isnan(row.mean[name])]
    best = show(max((row.mean[name] for row in known), default=math.nan), 1)
    leaders = [row for row in known if show(row.mean[name], 1) == best]
    if not leaders or len(leaders) == len(known):
        return ""
    return f"{words}: {_listed([row.label for row in leaders])}, {best} %."


def _lowest_spread(comparison: Comparison, name: str) -> str:
    rows, front = comparison.rows, comparison.front.get(name, ())
    least = lowest(rows, front, name)
    if least is None:
        return ""
    leaders = [row for row in rows if row.label in front and show(row.mean[name], 1) == show(least, 1)]
    at = _listed([f"{row.label}, {show(least, 1)} at a mean IoU of {show(row.mean['all'], 1)} %" for row in leaders])
    text = f"Lowest {NAMES[name]} among the runs on the front of mean IoU and {NAMES[name].split()[0]}: {at}"
    below = [row for row in rows if levelled_down_in(comparison, row.label, name) and row.mean[name] < least]
    if below:
        said = [f"{row.label} ({show(row.mean[name], 1)} at {show(row.mean['all'], 1)} %)" for row in below]
        verb = "has a lower one" if len(said) == 1 else "have lower ones"
        text += f"; {_listed(said)} {verb}, but at a lower mean IoU and with no gain for the worst third of the classes"
    return text + "."


def _significant(comparison: Comparison) -> str:
    """Return which rows have a significantly higher or lower mean IoU than the one compared with."""
    words = {1: "higher", -1: "lower"}
    found: dict[int, list[str]] = {1: [], -1: []}
    for label, change in comparison.changes.items():
        all_classes = change.measures["all"]
        if all_classes.significant:
            found[1 if all_classes.difference > 0 else -1].append(label)
    parts = [f"{words[sign]} for {_listed(labels)}" for sign, labels in found.items() if labels]
    if not comparison.changes:
        return ""
    against = f"Against {comparison.against}, the mean IoU is significantly "
    return (
        f"{against}{' and '.join(parts)}."
        if parts
        else f"No mean IoU differs significantly from {comparison.against}'s."
    )


def _listed(words: Sequence[str]) -> str:
    if len(words) > MOST:
        words = [*words[: MOST - 1], f"{len(words) - MOST + 1} others"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
