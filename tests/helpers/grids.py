"""Long grids of cases: a few of them run in every test run, the others are slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def grid(
    names: str | tuple[str, ...],
    cases: Iterable[Any],
    quick: int | Callable[[Any], bool] = 1,
    ids: Sequence[str] | Callable[[Any], str] | None = None,
) -> pytest.MarkDecorator:
    """Parametrise a test as ``pytest.mark.parametrize`` does; cases that are not quick are marked slow.

    ``quick`` is the number of quick cases at the start, or a predicate of a case.
    """
    marked = []
    for number, case in enumerate(cases):
        fast = number < quick if isinstance(quick, int) else quick(case)
        values = (case,) if isinstance(names, str) else case
        marked.append(pytest.param(*values, marks=() if fast else pytest.mark.slow))
    return pytest.mark.parametrize(names, marked, ids=ids)
