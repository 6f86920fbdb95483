"""Hooks of mkdocs: the live reports of the site are written when it is built, by the code that it describes.

docs/live/NAME is a run without its networks (docs/make_reports.py copies it there) and becomes the page live/NAME.html.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import faircl

LIVE = Path(__file__).parent / "live"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every run."""
    for run in sorted(path for path in LIVE.iterdir() if path.is_dir()):
        with tempfile.TemporaryDirectory() as folder:
            page = faircl.write_report(run, Path(folder) / "report.html")
            content = page.read_text(encoding="utf-8")
        files.append(File.generated(config, f"live/{run.name}.html", content=content))
    return files
