"""Plots as files: PDF, PNG or SVG, the same bytes for the same plot."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path

from matplotlib.figure import Figure

from faircl.errors import UserError
from faircl.report.style import STYLE

FORMATS = (".pdf", ".png", ".svg")
FILE_STYLE = {**STYLE, "pdf.fonttype": 42, "svg.hashsalt": "faircl"}  # 42: text stays text in PDF too
_METADATA = {  # a date would change the bytes of equal plots
    ".pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    ".png": {"Software": None},
    ".svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
}


def check_plot_file(path: Path) -> None:
    """Raise an error if no plot can be written to a path; called before the work whose result it would lose."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"Cannot write plot {path}: its name must end in one of {', '.join(FORMATS)}.")
    if not os.path.isdir(path.parent):
        raise UserError(f"Cannot write plot {path}: there is no folder {path.parent}; make it first.")
    if os.path.isdir(path):
        raise UserError(f"Cannot write plot {path}: it is a folder; choose another name.")


def save_plot(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all: to a file beside its place, which is then moved there."""
    suffix = path.suffix.lower()
    beside = path.with_name(f".{path.stem}.part{suffix}")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Glyph .* missing")  # a name in a script the font lacks
            figure.savefig(beside, dpi=160, metadata=_METADATA[suffix])
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UserError(f"Cannot write plot {path}: {error.strerror or error}; choose another place.") from None
