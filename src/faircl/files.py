"""Atomic writing of files; a failed write is a UserError."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from faircl.errors import UserError


@contextmanager
def writing(path: Path, clean_up: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Turn a failed write, such as on a full disk, into a UserError; ``clean_up`` removes what is half written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            clean_up()
        found = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(
            f"Cannot write {path}: {found}; finished steps are safe; fix that and continue (train with --resume)."
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: to a temporary file, which is then renamed."""
    part = path.with_name(f".{path.name}.part")
    with writing(path, lambda: part.unlink(missing_ok=True)):
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
