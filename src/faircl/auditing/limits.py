"""Limits that an audit must keep, so that it can guard a release: what was found, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
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
_SHARES = ("max_std", "max_gap", "min_miou", "min_class_iou")
"""Limits of which one below 1 is taken for a share of 1, unless it is written with a percent sign."""


class LimitCheck(NamedTuple):
    """One limit: its name, the class it is on (empty: all), its bound, what was found, whether it holds, a sentence."""

    limit: str
    of: str
    bound: float
    found: float
    holds: bool
    text: str


class _Percent(float):
    """A number that was written with a percent sign: below 1 it is no share, also where a copy of limits gets it."""


@dataclass(frozen=True)
class Limits:
    """Limits in percent or percent points, or texts such as "0.6%"; None: no such limit.

    A number between 0 and 1 is refused, since it is likely a share: less than 1 percent is a text with its sign, or the
    number that such a text has become here, so that ``dataclasses.replace`` works. A drop may be a fraction of a point.
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
            object.__setattr__(self, name, _percent(getattr(self, name), name, words, name in _SHARES))
        words = _HINTS["min_class_iou"]
        named = {
            name: _percent(value, f"min_class_iou of '{name}'", words, True)
            for name, value in self.class_ious.items()
            if value is not None
        }
        object.__setattr__(self, "class_ious", named)

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


def parse_limit(text: str) -> float | str:
    """Return the number of an option, or the text itself if it has a percent sign; a ValueError if it is neither."""
    number = float(text.removesuffix("%"))
    return text if text.endswith("%") else number


def parse_class_limits(texts: Iterable[str]) -> dict[str, Any]:
    """Return the limits of options ``30`` (every class) and ``rider=20`` (one class), as `Limits` takes them."""
    found: dict[str | None, tuple[str, float | str]] = {}  # None: every class
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = parse_limit(number)
        except ValueError:
            raise UserError(f"Found the limit '{text}'; expected an IoU such as 30, or NAME=IOU: rider=20.") from None
        key = name if equals else None
        if key in found:
            of = "every class" if key is None else f"'{key}'"
            raise UserError(f"The least IoU of {of} is given twice, as {found[key][0]} and {number}; give one.")
        found[key] = number, value
    every = found.pop(None, (None, None))[1]
    return {"min_class_iou": every, "class_ious": {name: value for name, (_, value) in found.items()}}


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


def _percent(value: Any, name: str, words: str, share: bool) -> float | None:
    """Return the number of a limit, None without one; with ``share`` a UserError for a plain number below 1."""
    found = value
    if isinstance(value, str) and value.endswith("%"):
        with suppress(ValueError):
            found = _Percent(value[:-1])
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if found is not None and not (number and 0 <= found <= 100):
        raise UserError(f"The limit {name} is {value!r}; expected {words}, from 0 to 100.")
    if share and found is not None and 0 < found < 1 and not isinstance(found, _Percent):
        raise UserError(
            f"The limit {name} is {found:g}, but limits are in percent: did you mean {100 * found:g}? Write "
            f"'{found:g}%' if you mean less than one percent."
        )
    limit: float | None = found
    return limit
