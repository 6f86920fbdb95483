"""Numbers of a page as text: a true minus, intervals, changes with their sign, units; counts and names of things."""

from __future__ import annotations

from collections.abc import Sequence

from faircl.fairness.intervals import Interval
from faircl.tables import show, true_minus

FEW = 3  # names in an enumeration


def number(value: float | None, digits: int = 2) -> str:
    """Return a number as text, as tables show it: "1,234", "−3.00", "–" for None and NaN."""
    return true_minus(show(value, digits))


def signed(value: float, digits: int = 1) -> str:
    """Return "+3.0", "−3.0" or, for what is rounded to nothing, "0.0"."""
    text = number(value, digits)
    return f"+{text}" if value > 0 and text != number(0.0, digits) else text


def between(interval: Interval | None, digits: int = 1) -> str:
    """Return the ends of an interval, "58.0 – 64.1"; empty where there is none."""
    return "" if interval is None else f"{number(interval.low, digits)} – {number(interval.high, digits)}"


def percent(value: float, digits: int = 1) -> str:
    """Return "61.2 %", which is not broken over two lines."""
    return f"{number(value, digits)}\N{NO-BREAK SPACE}%"


def points(value: float) -> str:
    """Return "61.2 points"."""
    return f"{number(value, 1)}\N{NO-BREAK SPACE}points"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return "1 step" or "2 steps"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def enumerated(names: Sequence[str], most: int = FEW) -> str:
    """Return "a", "a and b", "a, b and c", "a, b, c and 2 more"."""
    shown = list(names[:most])
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
