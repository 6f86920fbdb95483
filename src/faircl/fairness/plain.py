"""Measures as plain values for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """Return a dataclass as a dictionary of plain values: NaN as None, tuples and intervals as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
