"""Folders that a command writes: complete, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faircl.errors import UserError
from faircl.files import check_new_folder


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Give a folder to write into, whose content becomes that of ``out`` at the end; an error leaves nothing of it.

    An empty folder that is there already is filled and not replaced: it may be the current one, or a mount.
    """
    check_new_folder(out)
    exists = out.exists()
    part = out / ".part" if exists else out.with_name(f".{out.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
        if exists:
            for name in os.listdir(part):
                os.replace(part / name, out / name)
        else:
            os.replace(part, out)
    except OSError as error:
        raise UserError(f"Cannot write {out}: {error.strerror or error}; choose another folder with --out.") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
