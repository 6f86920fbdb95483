"""Durable, atomic writing of files and folders; a failed write is a UserError.

What is written goes to a temporary name, is flushed to the disk and then renamed; the rename is flushed too. A killed
process or a power cut leaves the old file or the new one, whole; of a folder it may also leave neither.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from faircl.checksums import write_checksums
from faircl.errors import UserError

_CANNOT_FLUSH = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of network file systems that cannot flush folders."""

RESUME = "fix that and try again (train with --resume: finished steps are safe)"
ELSEWHERE = "fix that, or choose another place for it"
"""What to do about a failed write: of a run that trains, and of anything else."""


@contextmanager
def writing(path: Path, clean_up: Callable[[], None] = lambda: None, advice: str = RESUME) -> Iterator[None]:
    """Turn a failed write, such as on a full disk, into a UserError that ends with an advice.

    ``clean_up`` removes what is half written.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            clean_up()
        found = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"Cannot write {path}: {found}; {advice}.") from None


def check_new_folder(out: Path) -> None:
    """Raise a UserError if the folder that a command is to write is there already and not empty."""
    try:
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:
        raise UserError(f"Cannot look at the output {out}: {error.strerror}; choose another with --out.") from None
    if taken:
        raise UserError(f"Output {out} is there already; choose a new or empty folder with --out.")


def write_text(path: Path, text: str, advice: str = RESUME) -> None:
    """Write a text file; the error of a failed write ends with the advice.

    Bytes of file names that are no text are written as escapes, which JSON reads back.
    """
    part = path.with_name(f".{path.name}.part")
    with writing(path, lambda: part.unlink(missing_ok=True), advice):
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        move_into_place(part, path)


def write_folder(final: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a folder, and add the checksums of its files; a folder that is there already is replaced."""
    part = final.with_name(f".{final.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with writing(final, lambda: shutil.rmtree(part, ignore_errors=True)):
        part.mkdir(parents=True)
        write(part)
        write_checksums(part)
        for path in part.rglob("*"):
            flush(path)
        shutil.rmtree(final, ignore_errors=True)
        move_into_place(part, final)
        flush(final.parent.parent)  # the parent may be new as well


def move_into_place(part: Path, final: Path) -> None:
    """Flush what was written under a temporary name, and rename it."""
    flush(part)
    os.replace(part, final)
    flush(final.parent)


def flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk; a folder only where the system can do that."""
    folder = path.is_dir()
    if os.name != "posix" and folder:
        return  # Windows cannot open folders
    try:
        handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    except PermissionError:
        if folder:  # one of somebody else, which may be entered but not listed
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if not (folder and error.errno in _CANNOT_FLUSH):
            raise
    finally:
        os.close(handle)
