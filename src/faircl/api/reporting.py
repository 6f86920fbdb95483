"""Writing the page of a run."""

from __future__ import annotations

from pathlib import Path

from faircl.api.opening import RunSource, folder_path, open_run
from faircl.errors import UserError

PAGE = "report.html"


def write_report(
    run: RunSource, out: str | Path | None = None, *, step: int | None = None, version: int | None = None
) -> Path:
    """Write the page of a run, one HTML file that opens offline, and return its path.

    By default it is ``report.html`` in the run's folder, which training also writes after every step. ``out`` is
    another file ending in .html; ``step`` shows the run as it was after that step, and ``version`` chooses a version of
    the run. A run of an earlier faircl, without a record image by image, gets a page that says what is missing.
    """
    target = None if out is None else _checked(out)
    folder = folder_path(run)
    if version is not None:
        from faircl.runs.versions import VersionChain

        folder = VersionChain.open(folder).find(version)
    opened = open_run(folder)

    from faircl.report.run_page import write_view
    from faircl.report.run_view import view_run

    view = view_run(opened, step)
    name = PAGE if step is None else f"report-step-{view.final.number}.html"
    return write_view(view, target or opened.folder / name, "choose another file with --out")


def _checked(out: str | Path) -> Path:
    if not isinstance(out, str | Path):
        raise UserError(f"Expected the path of an HTML file; found {out!r}.")
    path = Path(out).expanduser()
    if path.is_dir():
        raise UserError(f"Cannot write the page {path}: it is a folder; give a file, such as {path / PAGE}.")
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"Cannot write the page {path}: its name must end in .html.")
    if not path.parent.is_dir():
        raise UserError(f"Cannot write the page {path}: there is no folder {path.parent}; make it first.")
    return path
