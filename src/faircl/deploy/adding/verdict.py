"""What a new version of a model changed: IoU of every class before and after, and whether the loss is allowed."""

from __future__ import annotations

from dataclasses import dataclass

from faircl.metrics.summary import mean
from faircl.runs.reading import Record
from faircl.runs.versions import ClassChange, Version
from faircl.tables import Column, Table, show


@dataclass(frozen=True)
class Verdict:
    """Changes of all classes, what old classes lost or agree to, and why the version is rejected, if it is."""

    changes: tuple[ClassChange, ...]
    drop: float | None = None
    agreement: float | None = None
    reason: str = ""


def compare_predictions(before: Record, after: Record, background: bool) -> Verdict:
    """Compare two models by evaluations whose truth are the predictions of the first; nothing is rejected.

    The agreement is the mean IoU after, over old classes that the first model predicts, without background.
    """
    changes = class_changes(before, after)
    old = [one.after for one in changes[int(background) :] if one.change is not None and one.after is not None]
    return Verdict(changes, agreement=mean(old) if old else None)


def judge(before: Record, after: Record, max_drop: float, max_class_drop: float | None, background: bool) -> Verdict:
    """Compare two models by their evaluations on the same holdout images.

    The mean loss is over old classes that both models were scored on, without background:
    drop = 1/n · Σ_c (IoU_before(c) − IoU_after(c)).
    """
    changes = class_changes(before, after)
    lost = [(-one.change, one.name) for one in changes[int(background) :] if one.change is not None]
    if not lost:
        return Verdict(changes)
    drop, (worst, name) = mean(value for value, _ in lost), max(lost)
    if drop > max_drop:
        reason = f"old classes lost {drop:.1f} points on average; allowed are {max_drop:g} (--max-drop)"
    elif max_class_drop is not None and worst > max_class_drop:
        reason = f"class '{name}' lost {worst:.1f} points; allowed are {max_class_drop:g} (--max-class-drop)"
    else:
        reason = ""
    return Verdict(changes, drop, reason=reason)


def class_changes(before: Record, after: Record) -> tuple[ClassChange, ...]:
    """Return the IoU of every class in two evaluations."""
    then = {row["id"]: row["iou"] for row in before["classes"]}
    return tuple(ClassChange(row["id"], row["name"], then.get(row["id"]), row["iou"]) for row in after["classes"])


def changes_table(changes: tuple[ClassChange, ...]) -> Table:
    """Return the classes, those that lost most first, then those that are new."""
    old = sorted((one for one in changes if one.before is not None), key=lambda one: one.change or 0)
    rest = [one for one in changes if one.before is None]
    columns = [Column("class", wrap=False), Column("before", 1), Column("after", 1), Column("change", 1)]
    return Table(columns, [[one.name, one.before, one.after, one.change] for one in (*old, *rest)])


def summary(version: Version) -> str:
    """Say in a line what old classes lost, or how far they agree with the model before."""
    if version.drop is not None:
        change = (
            f"old classes {'lost' if version.drop > 0 else 'gained'} {show(abs(version.drop), 1)} points on average"
        )
    elif version.agreement is not None:
        change = f"predictions of old classes agree to {show(version.agreement, 1)} on average"
    else:
        change = "no old class could be compared"
    return f"IoU in percent, {version.measured}; {change}"
