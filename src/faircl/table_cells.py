"""The values of a table: numbers and texts, how they are shown, and which of them is the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from faircl.table_escapes import printable

MISSING = "–"
"""Printed for None and NaN."""

Mark = Literal["better", "worse"]


class MeanStd(NamedTuple):
    """Mean and standard deviation over several runs, shown as ``mean±std``; in CSV each has a column."""

    mean: float
    std: float


class Styled(NamedTuple):
    """A value and how it is shown.

    - style: a rich style, such as ``bold red``, which only the terminal shows.
    - mark: ``better`` or ``worse`` than a reference, shown as ▲ or ▼ behind the value, in CSV as a column of its own.
    - best: whether it is marked as the best of its column; by default the column decides, among such values alone.
    """

    value: Plain
    style: str = ""
    mark: Mark | None = None
    best: bool | None = None


Plain = str | int | float | MeanStd | None
Value = Plain | Styled


class Column(NamedTuple):
    """Heading and number format of a column.

    - digits: decimals of floats; integers have thousands separators.
    - best: which value is marked as the best, if any.
    - kind: ``percent`` shows 0.5 as "50%", ``factor`` 0.5 as "0.5×", ``scientific`` 0.5 as "5e-01".
    - wrap: whether the terminal may break its texts over several lines.
    - detail: whether the terminal leaves the column out where the table would be too wide.
    - group: heading above neighbouring columns that have the same one; where formats have no such headings it stands in
      front of the name.

    A line break in ``name`` is kept on the terminal only.
    """

    name: str
    digits: int = 2
    best: Literal["max", "min"] | None = None
    kind: Literal["number", "percent", "factor", "scientific"] = "number"
    wrap: bool = True
    detail: bool = False
    group: str = ""

    @property
    def heading(self) -> str:
        """Group and name together."""
        return f"{self.group}\n{self.name}" if self.group else self.name

    def show(self, value: Plain) -> str:
        """Return a value as text."""
        if isinstance(value, MeanStd):
            return MISSING if math.isnan(value.mean) else f"{self.show(value.mean)}±{self.show(value.std)}"
        if is_missing(value) or isinstance(value, str | None) or self.kind == "number":
            return show(value, self.digits)
        if self.kind == "scientific":
            return f"{value + 0.0:.{self.digits}e}"  # + 0.0 turns -0.0 into 0.0
        return (
            f"{round(value, self.digits + 2) + 0.0:.{self.digits}%}"
            if self.kind == "percent"
            else f"{show(float(value), self.digits)}×"
        )


class Cell(NamedTuple):
    """A value as it is shown."""

    text: str
    number: bool
    best: bool
    style: str = ""
    mark: Mark | None = None


def is_missing(value: Plain) -> bool:
    """Whether a value is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def show(value: str | float | None, digits: int = 2) -> str:
    """Return a value as text: floats with ``digits`` decimals, integers with thousands separators."""
    if value is None or isinstance(value, str):
        return MISSING if value is None else printable(value)
    if isinstance(value, int):
        return f"{value:,}"
    # Adding zero turns the "-0.00" of a small negative number into "0.00".
    return MISSING if math.isnan(value) else f"{round(value, digits) + 0.0:,.{digits}f}"


def true_minus(text: str) -> str:
    """Return a shown number with a minus sign, which is as wide as a plus, in place of a leading hyphen."""
    return "\N{MINUS SIGN}" + text[1:] if text.startswith("-") else text


def styled(value: Value) -> Styled:
    """Return a value with how it is shown."""
    return value if isinstance(value, Styled) else Styled(value)


def _number(value: Plain) -> float | None:
    """Return what a value is ranked by: a number, or the mean of several."""
    number = value.mean if isinstance(value, MeanStd) else value
    return None if isinstance(number, str | None) or math.isnan(number) else number


def best_of(values: Sequence[Styled], column: Column) -> str | None:
    """Return the best of at least two numbers as text; values that look equal are then all marked."""
    numbers = [n for v in values if v.best is None and (n := _number(v.value)) is not None]
    if column.best is None or len(numbers) < 2:
        return None
    return column.show(max(numbers) if column.best == "max" else min(numbers))


def wins(value: Styled, column: Column, best: str | None) -> bool:
    """Whether a value is marked as the best of its column, whose best is shown as given."""
    number = _number(value.value)
    return value.best if value.best is not None else number is not None and column.show(number) == best
