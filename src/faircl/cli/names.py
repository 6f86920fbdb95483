"""Names that are given as one word of the command line, separated by commas."""

from __future__ import annotations

import csv


def comma_list(text: str) -> list[str]:
    """Return the names; one that holds a comma is quoted: ``van,"kiosk, large"``."""
    (names,) = csv.reader([text], skipinitialspace=True)
    return [name.strip() for name in names if name.strip()]
