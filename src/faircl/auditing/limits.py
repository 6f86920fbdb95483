"""Limits that an audit must keep, so that it can guard a release: what was found, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from faircl.errors import UserError, did_you_mean, listed
from faircl.fairness.audit import Audit
from faircl.fairness.difference import Change, Difference
from faircl.tables import show

_HINTS = {
    "max_std": "the largest standard deviation of class IoUs",
    "max_gap": "the largest distance between the best and the worst class IoU",
    "min_miou": "the least mean IoU",
    "min_class_iou": "the least IoU of a class",
    "max_drop": "what the mean or an old class may lose",
}


class LimitCheck(NamedTuple):
    """One limit: its name, the class it is on (empty: all), its bound, what was found, whether it holds, a sentence."""

    limit: str
    of: str
    bound: float
    found: float
    holds: bool
    text: str


@dataclass(frozen=True)
class Limits:
    """Limits in percent or percent points; None: no such limit.

    ``min_class_iou`` holds for every class with label pixels, ``class_ious`` for the classes it names, in its place.
    ``max_drop`` is what the mean IoU and every class may lose against an earlier audit.
    """

    max_std: float | None = None
    max_gap: float | None = None
    min_miou: float | None = None
    min_class_iou: float | None = None
    max_drop: float | None = None
    class_ious: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, words in _HINTS.items():
            _check(getattr(self, name), name, words)
        for name, value in self.class_ious.items():
            _check(value, f"min_class_iou of '{name}'", _HINTS["min_class_iou"])

    def __bool__(self) -> bool:
        return bool(self.class_ious) or any(getattr(self, name) is not None for name in _HINTS)


def read_limits(given: Limits | Mapping[str, Any] | None) -> Limits:
    """Return limits that are given as a mapping: ``{"max_std": 20, "min_class_iou": {"rider": 30}}``."""
    if given is None or isinstance(given, Limits):
        return given or Limits()
    values = dict(given)
    for name in values:
        if name not in _HINTS:
            raise UserError(f"There is no limit '{name}'.{did_you_mean(name, _HINTS)} There are: {listed([*_HINTS])}.")
    classes = values.get("min_class_iou")
    if isinstance(classes, Mapping):
        values["class_ious"] = {str(name): value for name, value in classes.items()}
        del values["min_class_iou"]
    return Limits(**values)


def parse_class_limits(texts: Iterable[str]) -> dict[str, Any]:
    """Return the limits of options ``30`` (every class) and ``rider=20`` (one class), as `Limits` takes them."""
    every: float | None = None
    named: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UserError(f"Found the limit '{text}'; expected an IoU such as 30, or NAME=IOU: rider=20.") from None
        if not equals:
            if every is not None:
                raise UserError(f"The least IoU of every class is given twice, as {every:g} and {value:g}; give one.")
            every = value
        elif name in named:
            raise UserError(f"The least IoU of '{name}' is given twice, as {named[name]:g} and {value:g}; give one.")
        else:
            named[name] = value
    return {"min_class_iou": every, "class_ious": named}


def check_limits(audit: Audit, limits: Limits) -> Iterator[LimitCheck]:
    """Yield the limits on an audit, by its point estimates; a spread is named with its mean."""
    mean = f"at a mean IoU of {_shown(audit.miou)}"
    if limits.min_miou is not None:
        text = f"the mean IoU is {_shown(audit.miou)}"
        yield _at_least("min_miou", "", limits.min_miou, audit.miou, text)
    if limits.max_std is not None:
        yield _at_most("max_std", limits.max_std, audit.std, f"the STD is {_shown(audit.std)} {mean}")
    if limits.max_gap is not None:
        text = f"the gap between the best and the worst class is {_shown(audit.gap)} {mean}"
        yield _at_most("max_gap", limits.max_gap, audit.gap, text)
    yield from _class_checks(audit, limits)


def check_drops(difference: Difference, bound: float) -> Iterator[LimitCheck]:
    """Yield the limit on what the mean and the classes lost: all that broke it, or the largest loss.

    It is broken where the whole interval of the loss lies above the bound, so that a loss by chance breaks nothing.
    """
    checks = [_drop("", "the mean IoU", difference.miou, bound, difference.confidence)]
    checks += [_drop(c.name, f"'{c.name}'", c, bound, difference.confidence) for c in difference.classes]
    known = [one for one in checks if not math.isnan(one.found)]
    yield from [one for one in known if not one.holds] or sorted(known, key=lambda one: -one.found)[:1]


def _drop(of: str, name: str, change: Change, bound: float, confidence: float) -> LimitCheck:
    loss = -change.difference
    sure = change.interval is not None and -change.interval.high > bound
    between = "interval not known: in too few images"
    if change.interval is not None:
        between = f"{100 * confidence:g} % interval {_shown(-change.interval.high)} to {_shown(-change.interval.low)}"
    moved = f"from {_shown(change.before)} to {_shown(change.after)}"
    text = f"{name} lost {_shown(loss)} points, {moved} ({between}); the most allowed is {bound:g}"
    return LimitCheck("max_drop", of, bound, loss, not sure, text)


def _class_checks(audit: Audit, limits: Limits) -> Iterator[LimitCheck]:
    ious = {one.name: one.iou for one in audit.classes}
    for name, bound in limits.class_ious.items():
        if name not in ious:
            hint = did_you_mean(name, ious)
            raise UserError(f"There is no class '{name}' to hold a limit.{hint} There are: {listed(list(ious))}.")
        found = ious[name]
        text = f"'{name}' has no label pixel" if math.isnan(found) else f"the IoU of '{name}' is {_shown(found)}"
        yield _at_least("min_class_iou", name, bound, found, text)
    if limits.min_class_iou is None:
        return
    others = {name: iou for name, iou in ious.items() if name not in limits.class_ious and not math.isnan(iou)}
    checks = [
        _at_least("min_class_iou", name, limits.min_class_iou, iou, f"the IoU of '{name}' is {_shown(iou)}")
        for name, iou in sorted(others.items(), key=lambda item: item[1])
    ]
    yield from [one for one in checks if not one.holds] or checks[:1]


def _at_least(limit: str, of: str, bound: float, found: float, text: str) -> LimitCheck:
    return LimitCheck(limit, of, bound, found, found >= bound, f"{text}; the least allowed is {bound:g}")


def _at_most(limit: str, bound: float, found: float, text: str) -> LimitCheck:
    return LimitCheck(limit, "", bound, found, found <= bound, f"{text}; the most allowed is {bound:g}")


def _shown(value: float) -> str:
    return show(value, 2)


def _check(value: Any, name: str, words: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value <= 100):
        raise UserError(f"The limit {name} is {value!r}; expected {words}, from 0 to 100.")
