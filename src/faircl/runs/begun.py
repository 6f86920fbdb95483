"""Whether a folder holds a run that has begun, and the error where one is to be continued that has not."""

from __future__ import annotations

from pathlib import Path

from faircl.errors import UserError
from faircl.runs.reading import CONFIG


def is_begun(folder: Path) -> bool:
    """Whether a run has been begun in a folder: its configuration is there."""
    return (folder / CONFIG).is_file()


def is_unused(folder: Path) -> bool:
    """Whether a folder holds nothing, or hidden files alone, as a run leaves that was killed before it began."""
    return all(entry.name.startswith(".") for entry in folder.iterdir())


def check_begun(folder: Path) -> None:
    """Raise a UserError if there is no run to continue in a folder."""
    if is_begun(folder):
        return
    try:
        unused = is_unused(folder)
    except OSError as error:
        raise UserError(
            f"There is no run to continue in {folder}: {error.strerror}; give the folder that 'faircl train' wrote, or "
            "leave --resume out to begin a run."
        ) from None
    if unused:
        raise UserError(
            f"There is no run to continue in {folder}: it stopped before anything was saved; start it again without "
            "--resume."
        )
    raise UserError(
        f"There is no run to continue in {folder}: it has no {CONFIG}; give the folder that 'faircl train' wrote."
    )
