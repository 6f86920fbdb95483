"""The page of a run, written into its folder while it trains."""

from __future__ import annotations

from pathlib import Path

from faircl.files import RESUME
from faircl.report.run_page import write_view
from faircl.report.run_view import view_run
from faircl.runs.run import load_run


def write_run_page(run_dir: Path) -> Path:
    """Write ``report.html`` into a run folder and return its path."""
    return write_view(view_run(load_run(run_dir)), Path(run_dir) / "report.html", RESUME)
